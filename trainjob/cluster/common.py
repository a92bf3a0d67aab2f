"""Types of text and numbers, and the sections of a cluster file that several kinds share."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

from trainjob.cluster.strict import BreachError, Rule, Strict, key, required
from trainjob.contract.environment import RANK_NAMES, STANDIN_HANG_S, TRY_ON_CPUS
from trainjob.contract.errors import RuleError

_OUR_PREFIX = "TRAINJOB_"
# Tried with bash 5.2: assigning to one of these ends the script, is lost, evaluates the value, or changes how bash
# reads the rest of the script (IFS, POSIXLY_CORRECT). The other names in bash's manual reach the ranks unchanged.
_BASH_PREFIXES = ("BASH", "COMP_", "READLINE_")
_BASH_NAMES = frozenset(
    [
        *("_", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "IFS", "LINENO"),
        *("OLDPWD", "OPTIND", "PIPESTATUS", "POSIXLY_CORRECT", "PPID", "PWD", "RANDOM", "SECONDS", "SHELLOPTS"),
        *("SHLVL", "SRANDOM", "UID"),
    ]
)


def refuse_name(name: str) -> None:
    """Raise RuleError for a variable that can't be set for a rank."""
    if name in RANK_NAMES:
        raise RuleError(f"{name} is set by the launcher, to a different value for each rank", "take it out")
    if name.startswith(_OUR_PREFIX) and name != STANDIN_HANG_S:
        text = f"{name} begins with {_OUR_PREFIX}, and these names are reserved for trainjob"
        raise RuleError(text, TRY_ON_CPUS if name == "TRAINJOB_DEVICE" else "choose another name")
    if name.startswith(("SLURM_", "SLURMD_", "SBATCH_")):
        raise RuleError(
            f"{name} belongs to Slurm, which tells jobs through it where they run",
            "take it out, or export it in prologue: if srun itself should read it",
        )
    if name in _BASH_NAMES or name.startswith(_BASH_PREFIXES):
        raise RuleError(f"{name} is one of bash's own names, which a job script can't pass on", "choose another name")


MEMORY_OPTIONS = frozenset(("mem", "mem-per-cpu", "mem-per-gpu"))


def refuse_two_memories(directives: Mapping[str, object]) -> None:
    """Raise BreachError for more than one of the options that ask for memory."""
    both = [name for name in directives if name in MEMORY_OPTIONS and directives[name] is not False]
    if len(both) > 1:
        given = " and ".join(f"{name} is {directives[name]}" for name in both)
        raise BreachError("directives", f"asks for memory twice: {given}, and sbatch takes one of them", "take one out")


def _check_cidrs(text: str) -> None:
    for part in text.split(","):
        try:
            if "/" in part:
                ipaddress.ip_network(part, strict=False)
        except ValueError:
            problem = f'read "{part}", expected an address with its prefix length, or the name of an interface'
            raise RuleError(problem, "write it as 10.5.0.0/16, or as eno1") from None


PlainText = Annotated[str, Rule(r"^[^\x00]*$", "text without the character NUL")]
Line = Annotated[str, Rule(r"^[^\x00-\x1f\x7f]+$", "one line of text that is not empty")]
Word = Annotated[str, Rule(r"^[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*$", "one word that begins with no dash")]
JobName = Annotated[str, Rule(r"^[^\x00-\x1f\x7f/]{1,200}$", "one line of at most 200 characters without a slash")]
OptionName = Annotated[
    str, Rule(r"^[A-Za-z_][A-Za-z0-9_]*$", "a name of letters, digits and underscores that begins with no digit")
]
DirectiveName = Annotated[
    str, Rule(r"^[a-z][a-z0-9-]*$", "an sbatch option by its long name, without the dashes (cpus-per-task)")
]
Interface = Annotated[
    str,
    Rule(
        r"^[A-Za-z0-9^=][A-Za-z0-9._:,/@-]*$",
        "a network interface (eno1) or a CIDR (10.5.0.0/16)",
        check=_check_cidrs,
    ),
]
SlurmTime = Annotated[
    str,
    Rule(
        r"^([0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED|INFINITE)$",
        'a time as Slurm writes it: "04:00:00", "1-12:00:00", or minutes: "90"',
    ),
]
Version = Annotated[str, Rule(r"^[0-9]+\.[0-9]+(\.[0-9]+)?([+-][A-Za-z0-9.+-]+)?$", 'a release: "3.3.0"')]
EnvironmentName = Annotated[OptionName, Rule(check=refuse_name)]
# The reader keeps numbers as they are written (3.10 stays "3.10"), so a file need not quote them.
WrittenText = Annotated[PlainText, Rule(json_type=("string", "number"))]
Environment = dict[EnvironmentName, WrittenText]
Number = Annotated[int, Rule(at_least=0)]
Count = Annotated[int, Rule(at_least=1)]
Port = Annotated[int, Rule(at_least=1, at_most=65535)]
FreePort = Annotated[int, Rule(at_least=1024, at_most=65535)]
Price = Annotated[float, Rule(at_least=0)]


class Budget(Strict):
    """The hours of devices that runs may cost together, each at most until it has ended, and then as it was."""

    gpu_hours: Price | None = key(None, "Hours of GPUs: 8 GPUs for 3 hours are 24.")
    ipu_hours: Price | None = key(None, "Hours of IPUs.")
    per: Literal["day", "week", "month"] | None = key(
        None, "The time that ends now, in which they count: 24 hours, 7 days or 30 days. Absent: all runs ever."
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for a budget of nothing."""
        if self.gpu_hours is None and self.ipu_hours is None:
            raise BreachError("gpu_hours", "is missing, and so is ipu_hours", "give at least one")


class Ssh(Strict):
    """The host that launches jobs, reached with the system's ssh and the user's ssh configuration."""

    host: Word = required("Host name, or an alias from ~/.ssh/config.")
    user: Word | None = key(None, "User name on that host. Absent: as ssh decides.")


class Network(Strict):
    """The network that ranks meet on."""

    interface: Interface | None = key(
        None,
        "Interface name (eno1) or, on a pod, a CIDR (10.5.0.0/16). "
        "Absent: that of a host's own name; if that is a loopback address, the one that reaches the first host.",
    )
    data_interface: Interface | None = key(
        None,
        "Interfaces for data, if they differ from interface: ib0,ib1, or a pattern for NCCL such as ^docker,lo. "
        "Absent: interface.",
    )
    port: FreePort | None = key(None, "Fixed rendezvous port, 1024 to 65535. Absent: a free one is chosen.")


class Container(Strict):
    """The container that ranks run in."""

    runtime: Literal["none", "apptainer", "pyxis", "shifter", "ce", "docker", "podman"] = key(
        "none",
        "What starts the container; apptainer: also Singularity, on nodes that have only that; "
        "ce: CSCS's Container Engine, srun --environment.",
    )
    image: Line | None = key(
        None, "Image file or reference, with ce an environment file; needed unless runtime is none."
    )
    mounts: list[Line] = key(
        [],
        "Folders and files that ranks see, at the same path or as SOURCE:TARGET; the run directory and data_dir always "
        "are, except with shifter and ce, whose site or environment file mounts them.",
    )

    options: list[Line] = key(
        [],
        "More words for the runtime, in front of the image, for an overlay or a home; with pyxis and ce, options of "
        "srun. What is given here is not checked.",
    )

    def enforce_rules(self) -> None:
        """Raise BreachError for a runtime without an image."""
        if self.runtime != "none" and self.image is None:
            raise BreachError("image", f"is missing, and runtime is {self.runtime}", "give the image, or runtime: none")
        if self.runtime == "ce" and self.mounts:
            raise BreachError("mounts", "are given, and runtime is ce", "state them in the environment file")


class Vipu(Strict):
    """The V-IPU controller and the partition (reference: poprun's --vipu options)."""

    server: Word | None = key(None, "Host of the V-IPU controller.")
    port: Port = key(8090, "Its port; 8090 is poprun's own default.")
    partition: Word | None = key(
        None, "Partition to use, or to create if poprun may; under Slurm %j stands for the job's id."
    )
    allocation: Word | None = key(
        None, "Allocation to create a partition in (a V-IPU cluster before SDK 2.6); %j as in partition."
    )
    timeout_s: Count = key(120, "Seconds that a request may take; 120 is poprun's own default.")
    update_partition: bool | None = key(None, "Let poprun change a partition to fit. Absent: poprun decides.")
    reset_partition: bool | None = key(None, "Reset the partition before the run. Absent: poprun decides.")
    remove_partition: bool | None = key(None, "At the end, remove a partition that poprun made. Absent: it does.")


class Sdk(Strict):
    """The Poplar SDK on the hosts."""

    version: Version = required('SDK release, quoted: "3.3.0".')
    path: Line | None = key(None, "Unpacked SDK: the folder whose enable script is sourced.")
    venv: Line | None = key(None, "Virtualenv that has poptorch.")

    @property
    def python(self) -> str | None:
        """The virtualenv's interpreter; None if the file names no virtualenv."""
        return None if self.venv is None else f"{self.venv.rstrip('/')}/bin/python"


class Poprun(Strict):
    """The options of poprun, which decides whatever is absent."""

    host_list: Literal["comma", "range"] = key(
        "comma", "How hosts are listed for poprun: a,b or a[1-2]; ranges from SDK 2.5 on."
    )
    numa: Literal["spread", "disabled"] | None = key(
        None, "Bind instances to NUMA nodes: --numa-aware before SDK 3.0, --process-placement from 3.0 on."
    )
    print_topology: bool = key(True, "Print hosts, ILDs, instances and replicas as a table.")
    verbosity: Annotated[int, Rule(at_least=0, at_most=2)] = key(0, "0: poprun's default; 1: --verbose; 2: --vv.")
    executable_cache: Line | None = key(None, "Folder of compiled executables, on every host.")
    mpi_global_args: list[Line] = key([], "Options for mpirun as a whole: --mca plm_rsh_num_concurrent 4")
    mpi_local_args: list[Line] = key([], "Options for every instance: -x NAME=VALUE")
    forward: list[EnvironmentName] = key([], "Further environment variables to pass to other hosts, by name.")
    options: dict[DirectiveName, Line | int | bool] = key(
        {}, "Any poprun option by its long name; true is yes, false is no."
    )
