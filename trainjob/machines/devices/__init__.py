"""What gc-monitor, nvidia-smi or rocm-smi says of a cluster's devices, as one table."""
