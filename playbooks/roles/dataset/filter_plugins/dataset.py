"""Filters of the role `dataset`."""

from __future__ import annotations


def dataset_flag(item):
    """Return one option of a data set as `trainjob data prepare` takes it."""
    return "--%s=%s" % (item["key"].replace("_", "-"), item["value"])


class FilterModule:
    """What Ansible looks for."""

    def filters(self):
        """Return the filters by name."""
        return {"dataset_flag": dataset_flag}
