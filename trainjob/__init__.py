"""trainjob: one training job from a laptop to a cluster, proved on the way."""

__version__ = "0.1.0"
