"""Compares what ranks saw of a batch file with what those of the job saw that it was adopted as."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from batchfiles.adoption.decisions import ASKING_VERBS
from batchfiles.adoption.explanations import explains
from batchfiles.adoption.start import main_launch
from batchfiles.bash.values import HOLE
from batchfiles.rehearsal.environments import below
from batchfiles.rehearsal.observations import (
    RankObservation,
    cpus_asked,
    drawn,
    made_of,
    observe_ranks,
    requested,
    with_cpus_of_a_node,
    without_what_was_given,
)
from batchfiles.rehearsal.recording import Call, Recording
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.helpers import ENVIRONMENTS
from trainjob.planning.words import quantity
from trainjob.records.files import read_first

_JOB = "the job"
_LARGEST_TEXT_BYTES = 1 << 20
# What dash says of bash.
_OF_DASH = re.compile(r"slurm_script: (?:line )?\d+: (?:Syntax error|Bad substitution|\S+: not found)")


class ProofDifference(NamedTuple):
    """A difference between a file and its job. Nothing explains the aspect `start`."""

    aspect: str
    text: str
    pairs: tuple[tuple[str, str], ...] = ()  # the words that differ, variables, or calls


class InterruptedEnd(NamedTuple):
    """What became of a file or a job that its time limit has interrupted. `state` is Slurm's, of the last job."""

    state: str
    starts: int
    why: str | None  # where it is not COMPLETED: why it was ended, or what its job script says
    files: Mapping[str, str]  # in its project, as files_written() has them

    @property
    def in_words(self) -> str:
        """The state and the starts."""
        return f"{self.state} after {quantity(self.starts, 'start')}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Proof:
    """What the ranks of both saw. `problem` is why one of them could not run.

    `refusal` is why sbatch refuses the file: then `original` is what ranks saw of a copy that it takes. `files` are the
    files that each has written into its project, with a digest of those that stood there before the training began.
    `setup` are the calls of programs that set up an environment, in their order. `ends` is what became of each after it
    was interrupted; None if neither was.
    """

    original: Sequence[RankObservation]
    adopted: Sequence[RankObservation]
    problem: ProofDifference | None = None
    refusal: str | None = None
    files: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    setup: tuple[Sequence[str], Sequence[str]] = ((), ())
    ends: tuple[InterruptedEnd, InterruptedEnd] | None = None

    @property
    def is_equal(self) -> bool:
        """Whether all ranks saw the same."""
        return bool(self.original) and not self.differences()

    def differences(self) -> list[ProofDifference]:
        """Return what differs, in words."""
        found = [] if self.refusal is None else [ProofDifference("refusal", self.refusal)]
        if self.problem is not None:
            started = f"; the job starts {_ranks_in_words(self.adopted)}" if self.adopted else ""
            return [*found, self.problem._replace(text=self.problem.text + started)]
        if len(self.original) != len(self.adopted):
            starts = f"the file starts {_ranks_in_words(self.original)}"
            found.append(ProofDifference("ranks", f"{starts}; and the job {_ranks_in_words(self.adopted)}"))
        is_same_number = len(self.original) == len(self.adopted)
        of_each = RankObservation._fields if is_same_number else ("command", "environment", "folder")
        for theirs, ours in in_pairs(self.original, self.adopted):
            for name in of_each:
                one, other = getattr(theirs, name), getattr(ours, name)
                if one != other:
                    what, sides = name.replace("_", " "), (_only(one, other), _only(other, one))
                    text = f"{what} of rank {ours.rank}: {sides[0]}, and {sides[1]} in the job"
                    found.append(ProofDifference(what, text, _pairs(one, other)))
        found += _differences_of_files(*self.files)
        if list(self.setup[0]) != list(self.setup[1]):
            found.append(ProofDifference("setup", f"the file calls {_only_calls(*self.setup)}", _unpaired(*self.setup)))
        if self.ends is not None:
            one, other = self.ends
            if (one.state, one.starts) != (other.state, other.starts):
                text = f"interrupted by its time limit, the file is {one.in_words}, and the job is {other.in_words}"
                found.append(ProofDifference("end", text))
            elif one.starts == 1 and one.state == "COMPLETED":
                found.append(ProofDifference("start", "neither was interrupted: both end before their time limit"))
            found += [
                ProofDifference("files at the end", f"at the end, {difference.text}")
                for difference in _differences_of_files(one.files, other.files)
            ]
        return list(dict.fromkeys(found))

    def unexplained(self, explanations: Mapping[str, Collection[str]]) -> list[ProofDifference]:
        """Return what differs, and is nothing that a fault of the file explains."""
        return [
            one
            for one in self.differences()
            if not all(explains(explanations, one.aspect, *pair) for pair in one.pairs or [("", "")])
        ]

    @property
    def compared(self) -> str:
        """The compared aspects, in words."""
        return ", ".join((*(name.replace("_", " ") for name in RankObservation._fields), "files written", "setup"))

    def as_json(self, explanations: Mapping[str, Collection[str]] = MappingProxyType({})) -> dict[str, Any]:
        """Return the proof for `--json`."""
        ranks = {"original": self.original, "adopted": self.adopted}
        return {
            "equal": self.is_equal,
            "differences": [one.text for one in self.differences()],
            "unexplained": [one.text for one in self.unexplained(explanations)],
            **{name: [one._asdict() for one in observed] for name, observed in ranks.items()},
            "ends": None if self.ends is None else [{**one._asdict(), "files": sorted(one.files)} for one in self.ends],
        }


def _ranks_in_words(observed: Sequence[RankObservation]) -> str:
    sizes = " and of ".join(str(size) for size in sorted({one.world_size for one in observed}))
    nodes = quantity(len({one.node for one in observed}), "node")
    return f"{quantity(len(observed), 'rank')} on {nodes}, each of a world of {sizes}"


def _differences_of_files(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[ProofDifference]:
    for names, who in ((theirs.keys() - ours.keys(), "file"), (ours.keys() - theirs.keys(), "job")):
        if names:
            yield ProofDifference("files", f"only the {who} writes {', '.join(sorted(names))}")
    other = sorted(name for name in theirs.keys() & ours.keys() if theirs[name] and theirs[name] != ours[name])
    if other:
        yield ProofDifference("files", f"the job writes something else into {', '.join(other)}")


def _only_calls(theirs: Sequence[str], ours: Sequence[str]) -> str:
    one, other = ("; ".join(call for call in of if call not in also) for of, also in ((theirs, ours), (ours, theirs)))
    if one or other:
        return f"{one or 'nothing else'}, and the job {other or 'does not'}"
    return f"{'; '.join(theirs)}, and the job {'; '.join(ours)}"


def _unpaired(theirs: Sequence[str], ours: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the calls that only one of them has, each beside nothing; if both have all, their orders."""
    only = [*((call, "") for call in theirs if call not in ours), *(("", call) for call in ours if call not in theirs)]
    return tuple(only) or ((shlex.join(theirs), shlex.join(ours)),)


def _pairs(one: object, other: object) -> tuple[tuple[str, str], ...]:
    """Return the words of two commands that differ, behind an option each, or the variables of two environments."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        theirs, ours = dict(one), dict(other)
        every = [
            tuple(f"{name}={of[name]}" if name in of else "" for of in (theirs, ours))
            for name in dict.fromkeys([*theirs, *ours])
        ]
    else:
        words = [_words_of(str(text).replace("the first node", "the-first-node")) for text in (one, other)]
        if len(words[0]) != len(words[1]):
            return ((str(one), str(other)),)
        every = [
            (f"{before} {left}", f"{before} {right}") if before.startswith("-") else (left, right)
            for before, left, right in zip(["", *words[1]], *words, strict=False)
        ]
    return tuple((left, right) for left, right in every if left != right) or ((str(one), str(other)),)


def _words_of(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # what was replaced in it stood in quotes
        return text.split()


def _only(value: object, other: object) -> str:
    """Return a value in words; of several variables, those that `other` does not have."""
    if isinstance(value, tuple) and isinstance(other, tuple):
        return ", ".join(f"{name}={text}" for name, text in value if (name, text) not in other) or "nothing"
    return str(value)


def compared(
    script: BatchScript,
    original: Recording,
    adopted: Recording,
    refusal: str | None,
    files: tuple[Mapping[str, str], Mapping[str, str]],
    bases: tuple[str, str],
    elsewhere: Collection[str],
    elements: Collection[str] = (),
) -> Proof:
    """Return what the ranks of both saw, as far as it can be compared.

    The project is `elsewhere`, too; that of the job in `elements`.
    """
    names, asked = requested(script), cpus_asked(script)
    of_job = _why_no_ranks(_JOB, adopted)
    if (problem := _why_no_ranks(script.path.name, original) or of_job) is not None:
        return Proof((), observe_ranks(adopted, names, asked) if of_job is None else (), problem, refusal)
    # From Slurm 22.05 to 24.05 srun loses the CPUs that the file asks for: they are what it wants.
    folders = {one.folder for one in original.ranks(original.jobs[0].id)}  # both may name them
    program = [word.text for word in main_launch(script).program]
    theirs = observe_ranks(original, names, asked, folders, asked or 0, program, bases[0], elsewhere)
    ours = observe_ranks(
        adopted, names, asked, {*folders, *elements}, 0, program, bases[1], elsewhere=(*elements, *elsewhere)
    )
    words, anew = made_of(script), drawn(script)
    theirs, ours = (
        [
            one._replace(
                environment=tuple(
                    (name, "…" if name in anew else text) for name, text in one.environment if name not in words
                )
            )
            for one in of
        ]
        for of in (theirs, ours)
    )
    cpus = len(os.sched_getaffinity(0))
    per_node = max(Counter(one.node for one in ours).values(), default=0)
    ours = [with_cpus_of_a_node(one, other, cpus, per_node) for one, other in zip_longest(ours, theirs) if one]
    # Paths of the batch file's own folder stand in the job, too.
    projects = {*bases, *elsewhere, *elements, str(Path.cwd())}
    both = folders | projects
    login = original.login | adopted.login
    pairs = [without_what_was_given(one, other, original.given, both, login) for one, other in in_pairs(theirs, ours)]
    theirs, ours = [one for one, _ in pairs[: len(theirs)]], [other for _, other in pairs[: len(ours)]]
    setup = (setup_calls(original, projects, program), setup_calls(adopted, projects, program))
    return Proof(theirs, ours, refusal=refusal, files=files, setup=setup)


def in_pairs(
    theirs: Sequence[RankObservation], ours: Sequence[RankObservation]
) -> list[tuple[RankObservation, RankObservation]]:
    """Return each rank of the file with that of the job; of ranks that one of them lacks, the last has to do."""
    count = max(len(theirs), len(ours)) if theirs and ours else 0
    return [(theirs[min(at, len(theirs) - 1)], ours[min(at, len(ours) - 1)]) for at in range(count)]


def setup_calls(seen: Recording, folders: Collection[str], program: Sequence[str] = ()) -> list[str]:
    """Return the calls of programs that set up an environment, each once, in their order.

    Those of `program` are not among them, nor what the batch shell calls behind the training: a job ends with it.
    """
    begun = max((one.began_at for one in seen.processes if not one.is_launcher), default=float("inf"))

    def words(one: Call) -> Sequence[str]:
        is_path = one.name == "source" and "/" in "".join(one.words[1:2])
        return (one.name, os.path.join(one.folder, one.words[1]), *one.words[2:]) if is_path else one.words

    def asks(one: Call) -> bool:
        if list(one.words[1:2]) == ["run"]:
            # What starts a rank, whose command is compared, may start it once on each node in one of the two.
            return "".join(program[:1]).rpartition("/")[2] in (word.rpartition("/")[2] for word in one.words)
        return one.words[1] in ASKING_VERBS if one.words[1:] else one.name in ("module", "ml")

    calls = (
        one
        for one in seen.calls
        if one.name in (*ENVIRONMENTS, "source") and not asks(one) and (one.in_step or one.at <= begun)
    )
    return list(dict.fromkeys(below(shlex.join(words(one)), folders) for one in calls))


def logs_of(script: BatchScript) -> str:
    """Return a pattern for the files in which output is kept, as a run keeps it in logs of its own."""
    stated = [script.header.value(name) or "" for name in ("output", "error")]
    stated += [path.text for _, path in main_launch(script).outermost.command.writes_to]
    named = (re.sub(r"%\d*[A-Za-z]", HOLE, one).rpartition("/")[2] for one in stated)
    patterns = [re.escape(one).replace(re.escape(HOLE), ".*") for one in named if one]
    return "|".join([r".*\.(?:out|err|log|pyc)", *patterns])


def files_written(folder: Path, logs: str, begun: float = 0.0, folders: Collection[str] = ()) -> dict[str, str]:
    """Return the files below a folder, without `logs`, and a digest of each that is older than `begun`.

    What differs between any two jobs is neither in a name nor in a digest.
    """
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    own = {
        name: path for name, path in found.items() if not re.fullmatch(rf"(?:.*/)?(?:{logs})|(?:.*/)?\.git/.*", name)
    }
    return {re.sub(r"\d{4,}", "…", name): _digest(path, begun, folders) for name, path in own.items()}


def _digest(path: Path, begun: float, folders: Collection[str]) -> str:
    if path.stat().st_mtime >= begun or path.stat().st_size > _LARGEST_TEXT_BYTES:
        return ""
    text = below(read_first(path, _LARGEST_TEXT_BYTES).decode(errors="replace"), folders)
    return hashlib.sha256(re.sub(r"\d{4,}", "…", text).encode()).hexdigest()


def _why_no_ranks(what: str, seen: Recording) -> ProofDifference | None:
    """Return why no rank was seen. A fault of the file's may explain it, and nothing explains it of the job."""
    started_none = f"{what} started no rank: "
    if seen.refused is not None:
        found = ProofDifference("refusal", f"sbatch refuses {what}: {seen.refused}")
    elif seen.jobs and seen.ranks(seen.jobs[0].id):
        return None
    else:
        printed = seen.jobs[0].output.strip().splitlines() if seen.jobs else []
        text = started_none + (seen.stopped or (printed or ["it printed nothing"])[-1])
        found = ProofDifference("grammar of sh" if _OF_DASH.search(text) else "start", text)
        if seen.processes and all(one.is_launcher for one in seen.processes):
            found = found._replace(aspect="failure of launchers")
            if seen.stopped is not None:
                text = f"{started_none}its launchers wait for each other: {seen.stopped}"
                found = ProofDifference("meeting of launchers", text)
    return found._replace(aspect="start") if what == _JOB else found
