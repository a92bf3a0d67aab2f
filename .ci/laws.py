"""Holds the code to what import-linter can't say, in one pass over its trees. Prints each place that breaks a law.

python .ci/laws.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainjob.cli.main import COMMANDS, load
from trainjob.kinds.table import EVERY_KIND
from trainjob.launch import options

ROOT = Path(__file__).resolve().parent.parent
CODE = ("trainjob", "batchfiles")
Break = tuple[int, str]  # line, and what stands there


@dataclass(frozen=True)
class Source:
    """A file, named from the root, with every node of its tree if it is Python."""

    name: str
    text: str

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Every node of the syntax tree."""
        return list(ast.walk(ast.parse(self.text)))


@dataclass(frozen=True)
class Law:
    """A law: what it says, what breaks it, where it holds, and the files that it does not bind, with the reasons."""

    rule: str
    breaks: Callable[[Source], Iterator[Break]]
    holds_in: Callable[[str], bool] = lambda name: name.endswith(".py")
    exceptions: Mapping[str, str] = field(default_factory=dict)


# -- the kind of a cluster ----------------------------------------------------------------------

_CLASSES = {kind.MODEL.__name__ for kind in EVERY_KIND.values()}
_KNOW_KINDS = ("trainjob/cluster/", "trainjob/kinds/", "trainjob/train/", "trainjob/launch/", "batchfiles/")


def kind_questions(source: Source) -> Iterator[Break]:
    """Yield the places that ask of which class a cluster is, or compare its kind with a word."""
    for node in source.nodes:
        if isinstance(node, ast.MatchClass) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"):
            if {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & _CLASSES:
                yield _place(node)
        elif isinstance(node, ast.Compare):
            words = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)}
            if words & set(EVERY_KIND) and ".kind" in ast.unparse(node):
                yield _place(node)


# -- the clock ----------------------------------------------------------------------------------

# These read nothing if they are given the time, as the argument of this number.
_CONVERTS = {"gmtime": 1, "localtime": 1, "strftime": 2}
_NOW = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
_SHELL_CLOCK = re.compile(r"\bEPOCH(REALTIME|SECONDS)\b|\bSECONDS\b|%\([^)]*\)T|\bdate [+-]|/proc/uptime")
_READ_CLOCK = re.compile(r"^read_clock\(\) \{\n.*?^\}\n", flags=re.MULTILINE | re.DOTALL)


def clock_reads(source: Source) -> Iterator[Break]:
    """Yield what reads the clock, or waits, in Python, and in shell outside of the function that does."""
    if not source.name.endswith(".py"):
        blank = _READ_CLOCK.sub(lambda function: "\n" * function[0].count("\n"), source.text)
        for number, line in enumerate(blank.splitlines(), start=1):
            if _SHELL_CLOCK.search(re.sub(r"(^|\s)#.*", "", line)):
                yield number, line.strip()
        return
    imported = {name.name for node in source.nodes if isinstance(node, ast.Import) for name in node.names}
    given = {id(call.func): len(call.args) for call in source.nodes if isinstance(call, ast.Call)}
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield _place(node)
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        converts = given.get(id(node), 0) >= _CONVERTS.get(node.attr, 99)
        if ("time" in imported and owner == "time" and not converts) or (owner, node.attr) in _NOW:
            yield _place(node)


# -- the files of a run directory ---------------------------------------------------------------

# The functions of records.files that read or write a file. Errors, and JSON in memory, are anybody's.
_OPENS = {
    *("load_json", "load_number", "load_word", "open_regular", "read_json", "read_json_lines", "read_number"),
    *(
        "read_first",
        "read_small",
        "read_word",
        "append_json_line",
        "write_atomically",
        "write_json",
        "JsonLines",
        "LineWriter",
    ),
}
# Files of a run directory that have a type, as attributes of RunPaths.
TYPED = {
    *("job", "submission", "attempt", "state", "exit_code", "progress", "failure", "metrics", "events"),
    *("excluded_nodes", "job_id", "token", "requeue", "bad_node", "step_gone", "stacks_request"),
    *("rank_usage", "rank_times", "rank_stacks"),
}
# What may be done with such a path elsewhere: no content is read or written by it.
_HARMLESS = {"exists", "is_file", "stat", "name", "relative_to", "with_name", "unlink", "touch", "parent"}


def record_openings(source: Source) -> Iterator[Break]:
    """Yield imports of functions that open files, and calls that read or write `….paths.FILE` by themselves."""
    for node in source.nodes:
        if (
            isinstance(node, ast.ImportFrom)
            and (
                (node.module == "trainjob.records.files" and any(alias.name in _OPENS for alias in node.names))
                or (node.module == "trainjob.records" and any(alias.name == "files" for alias in node.names))
            )
        ) or (isinstance(node, ast.Import) and any(alias.name == "trainjob.records.files" for alias in node.names)):
            yield _place(node)
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and _is_typed(function.value) and function.attr not in _HARMLESS:
                yield _place(node)
            if isinstance(function, ast.Name) and function.id == "open":
                inner = (part for argument in node.args for part in ast.walk(argument))
                if any(_is_typed(part) for part in inner if isinstance(part, ast.expr)):
                    yield _place(node)


def _is_typed(node: ast.expr) -> bool:
    """Return whether an expression is such a path: paths.metrics, self._paths.rank_usage(3)."""
    if isinstance(node, ast.Call):
        node = node.func
    if not isinstance(node, ast.Attribute) or node.attr not in TYPED:
        return False
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name.endswith("paths") or (isinstance(owner, ast.Call) and ast.unparse(owner.func).endswith("RunPaths"))


# -- cures --------------------------------------------------------------------------------------

_ERRORS = {
    *("UserError", "RuleError", "CommandError", "TimedOutError", "ClusterError", "JobError", "HostlistError"),
    *("FolderError", "LaunchError", "NotSubmittedError", "SecretsError", "SshError"),
}


def errors_without_cure(source: Source) -> Iterator[Break]:
    """Yield each error that a user can meet and that does not say what to do about it."""
    for node in source.nodes:
        raised = node.exc if isinstance(node, ast.Raise) else None
        if isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id in _ERRORS:
            is_star = any(isinstance(word, ast.Starred) for word in raised.args)
            if len(raised.args) < 2 and not is_star and not any(word.arg == "cure" for word in raised.keywords):
                yield _place(node)


# -- flags in messages --------------------------------------------------------------------------

_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
_ARGPARSE = re.compile(r"""add_argument\(\s*"--([a-z0-9-]+)\"""")
# Flags that messages and comments name of other programs.
_OF_OTHERS = {
    "Slurm": {
        *("test-only", "ntasks", "ntasks-per-node", "nodes", "export", "dependency", "format", "ipus", "gres"),
        *("gpus-per-node", "gpus-per-task", "gpu-bind", "cpus-per-task", "cpu-bind", "environment"),
        *("jobid", "overlap", "mem"),
    },
    "scripts": {"batch", "batch-size"},
    "poprun": {"vipu", "numa-aware", "process-placement", "verbose", "vv"},
    "mpirun": {"mca"},
    "docker": {"privileged", "shm-size", "rm"},
    "pip": {"find-links", "dest", "target"},
    "mmdebstrap": {"aptopt"},
    "git": {"local", "list"},
}


def unknown_flags(known: set[str]) -> Callable[[Source], Iterator[Break]]:
    """Return what yields each flag of a text that people read, which no command and no other program has."""

    def breaks(source: Source) -> Iterator[Break]:
        for node in source.nodes:
            # Texts that people read have more than one word.
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
                for flag in _FLAG.findall(node.value):
                    if flag not in known:
                        yield node.lineno, f"--{flag}"

    return breaks


# -- names of classes ---------------------------------------------------------------------------


def repeated_class_names(sources: Sequence[Source]) -> Callable[[Source], Iterator[Break]]:
    """Return what yields each public class of a module whose name another public class has as well."""
    count = Counter(one.name for source in sources if source.name.endswith(".py") for one in _public_classes(source))

    def breaks(source: Source) -> Iterator[Break]:
        return (_place(one) for one in _public_classes(source) if count[one.name] > 1)

    return breaks


def _public_classes(source: Source) -> Iterator[ast.ClassDef]:
    (module,) = (node for node in source.nodes if isinstance(node, ast.Module))
    return (one for one in module.body if isinstance(one, ast.ClassDef) and not one.name.startswith("_"))


def known_flags(sources: Sequence[Source]) -> set[str]:
    """Return the flags of every command, of the programs that start without it (launch, measure), and of others."""
    flags = {"help", "version", *(name.replace("_", "-") for name in options.FLAGS)}.union(*_OF_OTHERS.values())
    for name in COMMANDS:
        flags |= {flag.removeprefix("--") for flag in _flags_of(load(name))}
    return flags.union(*(_ARGPARSE.findall(source.text) for source in sources))


def _flags_of(command: Any) -> Iterator[str]:
    """Yield every flag of a command and of the commands below it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from _flags_of(below)


# -- private names in tests ---------------------------------------------------------------------

_OUR_PACKAGES = (*CODE, "standins", "simulation", "benchmarks", "docs", "tests", "poptorch", "trainjob_gpu")
_OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_field_defaults"}


def private_names(source: Source) -> Iterator[Break]:
    """Yield where a test imports, reads or replaces a name that begins with an underscore, and is not its own."""
    foreign = {"self", "cls"}  # names that are not ours, and what a test's own class has
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
            if module.partition(".")[0] not in _OUR_PACKAGES:
                foreign |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif any(_is_private(alias.name) for alias in node.names):
                yield _place(node)
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and _root_of(node) not in foreign:
            yield _place(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            if any(isinstance(word, str) and _is_private(word.rpartition(".")[2]) for word in words):
                yield _place(node)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _OF_NAMED_TUPLES


def _root_of(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


# -- the laws -----------------------------------------------------------------------------------


def laws(sources: Sequence[Source]) -> list[Law]:
    """Return every law."""
    return [
        Law(
            "of which kind a cluster is, is known in its folder: everybody else asks for facts",
            kind_questions,
            lambda name: name.endswith(".py") and not name.startswith(_KNOW_KINDS),
        ),
        Law(
            "contract/clock.py and the shell library's read_clock alone read the clock and wait",
            clock_reads,
            lambda name: name.endswith((".py", ".sh", ".j2")),
            {
                "trainjob/contract/clock.py": "is the one place",
                "trainjob/launch/hooks/trainjob_hooks/batch.py": "runs without our package",
                "trainjob/launch/hooks/trainjob_hooks/counting.py": "runs without our package",
                "trainjob/launch/hooks/trainjob_hooks/recorder.py": "runs without our package",
                "trainjob/launch/hooks/trainjob_hooks/startup.py": "runs without our package",
                "trainjob/train/measure/probe.py": "runs without our package",
                "trainjob/backends/slurm/start_step.sh": "runs without our shell library",
                "trainjob/launch/shell/allocation.sh": "turns Slurm's EndTime into seconds by date",
                "trainjob/launch/shell/reservation.sh": "turns seconds into a time of day for people",
                "trainjob/machines/start_script.sh": "runs without our shell library",
                "batchfiles/rehearsal/programs/bash_env.sh": "runs without our shell library",
                "batchfiles/rehearsal/programs/program.sh": "runs without our shell library",
            },
        ),
        Law(
            "trainjob.records alone opens the files of a run directory: others ask it for a typed record",
            record_openings,
            lambda name: name.endswith(".py") and not name.startswith("trainjob/records/"),
            {
                "trainjob/accept/acceptance.py": "writes its evidence into the folder that --output names",
                "trainjob/backends/folder.py": "creates run directories from rendered bytes",
                "trainjob/backends/mirror.py": "copies files between machines byte for byte",
                "trainjob/backends/slurm/asking.py": "keeps the last answer of squeue in the user's data folder",
                "trainjob/cli/look/report.py": "writes the page that --html names",
                "trainjob/cluster/reading.py": "reads cluster and job files, and the user's configuration",
                "trainjob/data/manifest.py": "reads the manifests of data sets",
                "trainjob/launch/nodecheck/node_check.py": "nodes tell each other the fault that each has found",
                "trainjob/launch/ranks/node_start.py": "launchers of one node hand each other what one has found out",
                "trainjob/lifecycle/lock.py": "takes the lock of a run by a hard link, and names its holder in it",
                "trainjob/lifecycle/tensorboard.py": "notes in TensorBoard's log directory what was exported",
                "trainjob/observe/logs.py": "reads logs on as they grow: plain text, with no record in it",
                "trainjob/observe/notify.py": "notes in the user's data folder what was delivered",
                "trainjob/provision/drive.py": "reads and writes what ansible-playbook needs",
                "trainjob/requests/proofs.py": "keeps proofs in the user's data folder, beside no run",
                "trainjob/rehearse/gpus.py": "reads what stand-in GPUs wrote into a folder of the rehearsal",
                "trainjob/train/recording/checkpoint.py": "writes checkpoints: the tensors in them need torch",
                "trainjob/train/recording/safetensors.py": "reads the tensors of a file: they need torch",
                "trainjob/train/stalling.py": "ranks that stall tell each other so, and keep torch's flight record",
                "trainjob/observe/report/page.py": "shows the job script as it is",
                "batchfiles/commands/doctor.py": "reads batch files",
                "batchfiles/commands/rehearse.py": "looks whether a file that the user names has directives",
                "batchfiles/commands/trust.py": "reads batch files that others wrote, and notes which may run",
                "batchfiles/slurm/script.py": "reads batch files that others wrote",
                "batchfiles/commands/settings.py": "reads the settings of doctor in a project",
                "batchfiles/rehearsal/proof.py": "compares files that programs of a rehearsal wrote",
                "trainjob/check/script_problems.py": "reads the user's script",
                "batchfiles/rehearsal/recording.py": "reads what programs of a rehearsal wrote into its folder",
                "trainjob/verify/scripts/saved_states.py": "reads what scripts of users saved, and no record of ours",
                "trainjob/watch/show.py": "writes the file that --output names",
            },
        ),
        Law("every error that a user can meet says what to do about it", errors_without_cure),
        Law("a word means one thing: no two public classes have the same name", repeated_class_names(sources)),
        Law(
            "every flag in a message exists",
            unknown_flags(known_flags(sources)),
            # Batch files have the flags of other programs.
            lambda name: name.endswith(".py") and not name.startswith("batchfiles/"),
            exceptions={"trainjob/contract/programs/secrets_in_shell.py": "patterns of other programs' options"},
        ),
    ]


OF_TESTS = Law(
    "tests touch no private names",
    private_names,
    exceptions={
        "tests/standins/gpu/programs/fsdp2.py": "is written as other people write a script: torch's own name",
        **{
            f"tests/standins/ipu/test_{name}.py": "programs use these names of PopTorch, which has no others"
            for name in ("device", "operations", "options", "statements")
        },
    },
)


def _place(node: Any) -> Break:
    return node.lineno, ast.unparse(node).splitlines()[0]


def broken(sources: Sequence[Source], laws: Sequence[Law]) -> Iterator[str]:
    """Yield a line for each place that breaks a law, and for each exception that nothing needs."""
    for law in laws:
        needed = set()
        for source in sources:
            if not law.holds_in(source.name):
                continue
            for line, text in law.breaks(source):
                if source.name in law.exceptions:
                    needed.add(source.name)
                else:
                    yield f"{source.name}:{line}: {law.rule}: {text}"
        for name in sorted(set(law.exceptions) - needed):
            yield f"{name}: is no exception any more from: {law.rule}"


def read_sources(*patterns: str) -> list[Source]:
    """Return the files that match one of the patterns, from the root."""
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    return [Source(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")) for file in sorted(files)]


def main() -> int:
    """Check every law; return the exit code."""
    sources = read_sources(
        *(f"{folder}/**/*.{suffix}" for folder in CODE for suffix in ("py", "sh")), "templates/**/*.j2"
    )
    tests = read_sources("tests/**/*.py")
    every = laws(sources)
    found = [*broken(sources, every), *broken(tests, [OF_TESTS])]
    for line in found:
        print(line)
    print(f"{len(every) + 1} laws over {len(sources) + len(tests)} files: {len(found)} broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
