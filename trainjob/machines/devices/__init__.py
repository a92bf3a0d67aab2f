"""A cluster's devices, according to gc-monitor, nvidia-smi or rocm-smi, as one table."""
