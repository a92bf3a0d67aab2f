"""What a row of the table of settings says of a setting besides its name, type and default."""

import dataclasses
from typing import Any, Literal, NamedTuple, Optional, Tuple, Union

Scalar = Union[str, int, float, bool]

# Groups, in the order in which help and reference list them.
RUN, SIZE, BATCH, TRAINING, NUMERICS, DATA, RECORDS, SLURM, IPU = GROUPS = (
    "What runs",
    "How many",
    "Batch and length",
    "Optimizer",
    "Engine and precision",
    "Data",
    "Checkpoints and logs",
    "Slurm",
    "IPU",
)


class Setting(NamedTuple):
    """What a row says besides its type and default. Bounds and forms are checked when a job is read."""

    help: str
    group: str
    absent: str = ""  # in words, what stands in for a default of None
    task_only: bool = False  # means nothing beside a command of the user's own
    shared: bool = False  # the same for all elements of an array
    form: str = ""  # the name of a form of text or mapping: see cluster.job.FORMS
    flag: str = ""  # where it is not the setting's own name
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None


def setting(default: Any, help: str, **facts: Any) -> Any:  # noqa: A002 - the word every command line uses
    """Return the dataclass field of one row; each job gets its own list or mapping if the default is an empty one."""
    metadata = {"setting": Setting(help, **facts)}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=type(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Row(NamedTuple):
    """One setting, ready for whoever lists them."""

    name: str
    type: Any  # of the value where it is given: without Optional
    default: Any
    facts: Setting
    is_optional: bool

    @property
    def choices(self) -> Tuple[str, ...]:
        """The words the setting may have; none where any value of its type may be given."""
        return tuple(self.type.__args__) if getattr(self.type, "__origin__", None) is Literal else ()

    @property
    def type_in_words(self) -> str:
        """The type as the reference shows it: int, sgd | adamw, int | auto."""
        kinds = self.type.__args__ if getattr(self.type, "__origin__", None) is Union else (self.type,)
        return " | ".join(word for kind in kinds for word in getattr(kind, "__args__", (kind.__name__,)))

    @property
    def is_mapping(self) -> bool:
        """Whether the setting holds names with values, given one NAME=VALUE at a time."""
        return getattr(self.type, "__origin__", None) is dict

    @property
    def flag(self) -> str:
        """The command line's name of the setting: --micro-batch."""
        return self.facts.flag or "--" + self.name.replace("_", "-")

    @property
    def default_in_words(self) -> str:
        """The default as help shows it."""
        if self.default is None or self.default in ({}, []):
            return self.facts.absent or "none"
        return str(self.default).lower() if isinstance(self.default, bool) else "%s" % (self.default,)


def row_of(field: Any) -> Row:
    """Return the row that a dataclass field made by `setting` stands for."""
    kinds = getattr(field.type, "__args__", ()) if getattr(field.type, "__origin__", None) is Union else ()
    plain = [kind for kind in kinds if kind is not type(None)]
    is_optional = len(plain) == 1 and len(kinds) == 2
    default = field.default_factory() if field.default is dataclasses.MISSING else field.default
    return Row(field.name, plain[0] if is_optional else field.type, default, field.metadata["setting"], is_optional)
