"""Stand-ins for poprun and vipu: what they do to a job, without IPUs. Python 3.8, standard library."""


class Refused(Exception):  # noqa: N818 - an answer of the program, not a fault of its own
    """A request can't be met: one line, with the rule and the values."""
