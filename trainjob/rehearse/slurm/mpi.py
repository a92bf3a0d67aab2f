"""Open MPI in a private Slurm."""

# It passes loopback over, and a private Slurm's network has nothing else.
LOOPBACK = {f"OMPI_MCA_{layer}_tcp_if_include": "lo" for layer in ("oob", "btl")}
