"""The environment variables that trainjob reads and sets: a test compares them with the code."""

YOURS = {
    "XDG_DATA_HOME": "the folder of runs, their index and prepared data; `~/.local/share` if unset",
    "XDG_CONFIG_HOME": "the folder of your cluster files, preferences and templates; `~/.config` if unset",
    "XDG_CACHE_HOME": "the folder of compiled templates, stand-in GPUs and releases of Slurm; `~/.cache` if unset",
    "XDG_RUNTIME_DIR": "the folder of the sockets of shared ssh connections; the temporary folder if unset",
    "TRAINJOB_CLUSTER": "the cluster of commands that name none, before the job file, the project and `config.yaml`",
    "TRAINJOB_DEBIAN_MIRROR": "another mirror of Debian's packages, for `rehearse --slurm`",
    "TRAINJOB_STANDIN_HANG_S": "seconds that a rank on stand-in GPUs waits for one that calls no collective",
    "TRAINJOB_STANDIN_TORCH": "a folder with a CPU build of torch, for stand-in GPUs under a CUDA build",
    "TRAINJOB_STANDIN_COMPILE": "1: `torch.compile` compiles on stand-in GPUs; otherwise it runs the model as it is",
    "TRAINJOB_TEST_REQUIRE": "the services without which tests fail instead of being skipped, for developers",
}
RANKS = {
    "TRAINJOB_RUN_DIR": "the run directory",
    "TRAINJOB_ATTEMPT": "the number of this attempt, from 1",
    "TRAINJOB_DATA_DIR": "the folder of prepared data sets",
    "TRAINJOB_TOKEN": "a random word of this start, the same for all its ranks",
    "TRAINJOB_RANK_DEVICE": "the device of the rank: cpu, cuda:N or ipu",
    "TRAINJOB_SHARE": "of a packed element: the number of its share of a node, and how many a node has, as in 2/4",
    "TRAINJOB_COMPILE_ONLY": "not empty: a task compiles for its devices, and ends",
    "TRAINJOB_LIMITS": "what the prologue has set with `ulimit`, which holds for the ranks of every node",
    "TRAINJOB_LAUNCHER_LOG": "the log of a launcher that starts the ranks of its node, which leave it for their own",
    "TRAINJOB_STACKS": "where the rank's Python processes write their stacks when asked",
    "TRAINJOB_COUNTS": "where the Python processes of rank 0 write how many updates they have made",
    "TRAINJOB_STARTED": "when the launcher began and when it started the rank, in seconds since 1970",
    "TRAINJOB_ROLE_": "and a server's name in capitals: its address, host:port, for the roles of a job",
    "TRAINJOB_RECORD_UPDATES": "where `verify --resume` of a command records what each update left",
}
REHEARSALS = {
    "TRAINJOB_STANDIN_GPUS": "the GPUs of a node",
    "TRAINJOB_STANDIN_GPUS_SUMMARY": "the folder to which ranks write what they did with them",
    "TRAINJOB_STANDIN_CACHE": "the folder of caches in which the compiled stand-in GPUs are, whatever a job sets",
    "TRAINJOB_STANDIN_IPUS": "the IPUs of a pod",
    "TRAINJOB_STANDIN_VIPU": "the folder of the miniature V-IPU controller",
    "TRAINJOB_STANDIN_USER": "the user of that controller",
    "TRAINJOB_STANDIN_HOSTS": "the hosts of a pod",
    "TRAINJOB_STANDIN_MEETING": "the folder in which instances meet",
    "TRAINJOB_STANDIN_MPIRUN": "the mpirun that stands behind poprun",
    "TRAINJOB_STANDIN_ARITHMETIC": "float64: what is float32 on an IPU is computed in float64, for proofs",
    "TRAINJOB_SEEN": "the folder to which a rehearsed batch file's programs write what they were called with",
    "TRAINJOB_SEEN_DEFINED": "functions of the batch file and of its shell, which its job has to define",
    "TRAINJOB_SEEN_MISSING": "programs that are not here, and are stood in for by name",
    "TRAINJOB_SEEN_PATH": "PATH without those programs",
    "TRAINJOB_SEEN_PROGRAMS": "the folder of those programs",
    "TRAINJOB_SEEN_PYTHONPATH": "PYTHONPATH without theirs",
    "TRAINJOB_SEEN_WAIT_S": "Seconds that a process waits whose program is not here",
    "TRAINJOB_REHEARSED_CLUSTER": "the cluster whose shell `rehearse --shell` has opened",
    "TRAINJOB_REHEARSED_PATH": "what that shell adds to PATH",
    "TRAINJOB_REHEARSED_PYTHONPATH": "what it adds to PYTHONPATH",
}
# Set and read by the shell library of one job script, or by the prologue that `adopt` has written.
_LIBRARY = """
ALWAYS_FORWARDED ALWAYS_HANDED_IN CONTAINED DEVICES ELEMENT ELEMENT_NODE ELEMENT_SHARE ENABLE ENGINE FILE FOLDER
FORWARDED FOR_APPTAINER GROUP HANDED_IN HOST_PYTHON KEPT LABEL LIMITS_FOUND LINE MOUNTS MPI_GLOBAL MPI_LOCAL NAME
NETWORK NODE NODES NUMBER OF_GPUS OF_GROUPS OF_REHEARSAL OF_SLURM OF_SYSTEM ON_EACH_NODE OPTIONS OWN_PARTITION PACK
PAIRS PARENT PARTITION PREFIX READ REMOVES_PARTITION REQUESTS RUN_ID SDK SHELL SERVERS SHOWN SIGNALLED SIGNS
SLURM_NAMES SRUN SRUN_AT SRUN_OPTIONS STANDARD_PATH STEPS SUBMITTED_IN TARGETS TRIES
"""
LIBRARY = tuple(_LIBRARY.split())
