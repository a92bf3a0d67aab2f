"""What gc-monitor or nvidia-smi says of a cluster's devices, as one table."""
