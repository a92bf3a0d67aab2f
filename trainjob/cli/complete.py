"""What the shell completes beyond names of commands and flags."""

from __future__ import annotations


def runs(incomplete: str) -> list[str]:
    """Return the run ids that begin with what was typed."""
    from trainjob.runs import index

    return [run_id for run_id in index.ids() if run_id.startswith(incomplete)]


def clusters(incomplete: str) -> list[str]:
    """Return the cluster names that begin with what was typed."""
    from trainjob.cluster import lookup

    return [known.name for known in lookup.everything_known() if known.name.startswith(incomplete)]
