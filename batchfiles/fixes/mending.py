"""A batch file with its faults mended, as far as that is certain, and a diff of it."""

from __future__ import annotations

import difflib
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from batchfiles.bash.syntax import syntax_fault
from batchfiles.fixes.edits import SAFE, UNSAFE
from batchfiles.fixes.lines import Edit
from batchfiles.rules.codes import Finding, Severity
from batchfiles.rules.diagnosis import diagnosis_of
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, script_of

_MOST_FIXES = 200
_MOST_FOLLOWING = 4
Grammar = Callable[[bytes], object]


class _Version(NamedTuple):
    """A text of the file, and the faults in it."""

    script: BatchScript
    findings: list[Finding]

    @property
    def codes(self) -> Counter[str]:
        return Counter(one.code for one in self.findings)

    def edited(self, edits: Mapping[str, Edit], finding: Finding) -> _Version | None:
        """Return what the edit of a fault makes of this version; None if that is nothing else."""
        edit = edits.get(finding.code)
        text = None if edit is None else edit(self.script, finding)
        raw = self.script.raw if text is None else text.encode()
        return None if raw == self.script.raw else _read(self.script.path, raw, self.script.site)


def _read(path: Path, raw: bytes, site: SiteFacts) -> _Version:
    script = script_of(path, raw, site)
    return _Version(script, [one for one in diagnosis_of(script, ()).findings if not one.path])


class MendedFile(NamedTuple):
    """The text before and after, and the codes that were mended, in order."""

    path: Path
    before: bytes
    after: bytes
    mended: tuple[str, ...]

    def diff(self) -> str:
        """Return a unified diff; empty where nothing was mended."""
        before, after = (
            list(io.StringIO(raw.decode(errors="surrogateescape"), newline="\n")) for raw in (self.before, self.after)
        )
        lines = difflib.unified_diff(before, after, str(self.path), f"{self.path} (mended)")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def mended(
    path: Path,
    raw: bytes,
    site: SiteFacts,
    *,
    unsafe: bool,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    grammar: Grammar = syntax_fault,
) -> MendedFile:
    """Return what the file `path` becomes; with `unsafe`, also by changes of what it does.

    Only codes of `select` are mended, unless it is empty, and none of `ignore`. `grammar` says why bash can't read a
    text; None if it can. A file that isn't UTF-8, or has a merge conflict to settle, stays as it is.
    """
    try:
        raw.decode()
    except UnicodeDecodeError:
        return MendedFile(path, raw, raw, ())
    if b"\n<<<<<<< " in raw:
        return MendedFile(path, raw, raw, ())
    version, codes = _read(path, raw, site), list[str]()
    every = {**SAFE, **{code: _first_of(SAFE.get(code), edit) for code, edit in UNSAFE.items()}}
    for edits in (SAFE, every)[: 1 + unsafe]:  # so that unsafe fixes add to the safe ones, and take none of them back
        chosen = {code: edit for code, edit in edits.items() if (not select or code in select) and code not in ignore}
        version, more = _mended_by(version, edits, chosen, grammar)
        codes += more
    return MendedFile(path, raw, version.script.raw, tuple(codes))


def _mended_by(
    version: _Version, edits: Mapping[str, Edit], chosen: Mapping[str, Edit], grammar: Grammar
) -> tuple[_Version, list[str]]:
    """Return a version that no chosen edit betters, and the codes that were mended."""
    readable, codes = grammar(version.script.raw) is None, list[str]()
    failed: set[tuple[str, str]] = set()
    while len(codes) < _MOST_FIXES:
        left = (one for one in version.findings if one.code in chosen and (one.code, one.text) not in failed)
        finding = min(left, key=_turn, default=None)
        if finding is None:
            break
        better = _better(version, finding, chosen, edits)
        if better is not None and (not readable or grammar(better.script.raw) is None):
            version = better
            codes.append(finding.code)
            failed.clear()
        else:
            failed.add((finding.code, finding.text))
    return version, codes


def _turn(finding: Finding) -> tuple[bool, bool]:
    """Return the place of a fault among those that are mended: the least is the first.

    A recipe around a command that ends too early would part it from its other lines, and one around a training that has
    still to be started on its nodes would not fit it. A log that is appended to is no longer overwritten, but that
    of several jobs.
    """
    is_late = finding.severity is not Severity.ERROR and finding.code not in (
        "output-overwritten",
        "rank-expanded-early",
    )
    return finding.code not in _HIDING, is_late


# What hides the rest of a file from sbatch or bash: mended, it may show faults that were there before.
_HIDING = frozenset(
    (
        *("crlf", "shebang-not-first", "shebang-wrong", "no-such-option", "directive-refused", "directive-ignored"),
        *("broken-continuation", "unset-variable", "command-not-found", "sbatch-of-a-program"),
        "argument-swallowed",
    )
)


# A variable, or a quote, that a program gets as it is written.
_AS_WRITTEN = re.compile(r"\S*(?:\"|\$\{?[A-Z])\S*")


def _loses(before: BatchScript, after: BatchScript) -> bool:
    """Return whether an edit takes a training away, or what is still read, or has words that bash does not expand."""

    def odd(script: BatchScript) -> int:
        words = (word.text for one in script.commands if one.name not in ("echo", "printf") for word in one.words)
        bare = sum(len(one.words) == 1 and one.name in ("export", "readonly", "declare") for one in script.commands)
        return bare + sum(_AS_WRITTEN.fullmatch(text) is not None for text in words)

    gone = Counter(_set_by(before)) - Counter(_set_by(after))
    is_read = any(re.search(rf"\$\{{?[#!]?{name}\b", after.code) for name, _ in gone)
    return len(before.training) > len(after.training) or odd(before) < odd(after) or is_read


def _set_by(script: BatchScript) -> Iterator[tuple[str, bool]]:
    """Yield the variables that the file sets, and whether a shell that it calls has them."""
    return ((one.name, "called" in one.within) for one in script.assigned(r"\w+") if not one.source)


def _first_of(safe: Edit | None, unsafe: Edit) -> Edit:
    return unsafe if safe is None else lambda script, one: safe(script, one) or unsafe(script, one)


def _better(
    before: _Version, finding: Finding, chosen: Mapping[str, Edit], edits: Mapping[str, Edit]
) -> _Version | None:
    """Return a version without a fault, mended further where others are new; None unless it is gone, and they are."""
    version = before.edited(chosen, finding)
    for _ in range(_MOST_FOLLOWING):
        if version is None or (
            version.codes[finding.code] >= before.codes[finding.code] and not _is_elsewhere(before, version, finding)
        ):
            return None
        new = version.codes - before.codes
        if not new or finding.code in _HIDING:
            return None if _loses(before.script, version.script) else version
        shown = next((one for one in version.findings if one.code in new and one.code in edits), None)
        version = None if shown is None else version.edited(edits, shown)
    return None


def _is_elsewhere(before: _Version, after: _Version, finding: Finding) -> bool:
    """Return whether a fault is now only in other lines, which were there before: some are told one at a time."""
    others = {line for at, line in enumerate(before.script.lines, 1) if at != finding.line}
    lines = after.script.lines
    left = [one.line for one in after.findings if one.code == finding.code]
    return all(0 < number <= len(lines) and lines[number - 1] in others for number in left)
