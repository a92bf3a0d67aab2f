"""A batch file with its faults mended, as far as that is certain, and a diff of it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
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


class MendedFile(NamedTuple):
    """The text before and after, and the codes that were mended, in order."""

    path: Path
    before: bytes
    after: bytes
    mended: tuple[str, ...]

    def diff(self) -> str:
        """Return a unified diff; empty where nothing was mended."""
        before, after = (
            raw.decode(errors="surrogateescape").splitlines(keepends=True) for raw in (self.before, self.after)
        )
        return "".join(difflib.unified_diff(before, after, str(self.path), f"{self.path} (mended)"))


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
    current, codes = raw, []
    readable = grammar(raw) is None
    failed: set[tuple[str, str]] = set()
    fixers = {**SAFE, **{code: _first_of(SAFE.get(code), edit) for code, edit in UNSAFE.items()}} if unsafe else SAFE
    chosen = {code: edit for code, edit in fixers.items() if (not select or code in select) and code not in ignore}
    for _ in range(_MOST_FIXES):
        script = script_of(path, current, site)
        every = [one for one in diagnosis_of(script, ()).findings if not one.path]
        # A recipe around a command that ends too early would part it from its other lines, and one around a training
        # that has still to be started on its nodes would not fit it.
        # A log that is appended to is no longer overwritten, and still that of several jobs: it gets its name first.
        findings = sorted(
            every,
            key=lambda one: (
                one.code not in _HIDING,
                one.severity is not Severity.ERROR and one.code != "output-overwritten",
            ),
        )
        step = next(_steps(script, findings, current, failed, chosen), None)
        if step is None:
            break
        finding, text = step
        better = _followed_up(path, text, site, Counter(one.code for one in findings), finding, fixers, script.lines)
        if better is not None and _loses(script, script_of(path, better, site)):
            better = None
        if better is not None and (not readable or grammar(better) is None):
            current = better
            codes.append(finding.code)
            failed.clear()
        else:
            failed.add((finding.code, finding.text))
    return MendedFile(path, raw, current, tuple(codes))


# A variable, or a quote, that a program gets as it is written.
_AS_WRITTEN = re.compile(r"\S*(?:\"|\$\{?[A-Z])\S*")


def _loses(before: BatchScript, after: BatchScript) -> bool:
    """Return whether an edit has taken a training away, or put words where bash expands none, or nothing is left."""

    def odd(script: BatchScript) -> int:
        words = (word.text for one in script.commands if one.name not in ("echo", "printf") for word in one.words)
        bare = sum(len(one.words) == 1 and one.name in ("export", "readonly", "declare") for one in script.commands)
        return bare + sum(_AS_WRITTEN.fullmatch(text) is not None for text in words)

    return len(before.training) > len(after.training) or odd(before) < odd(after)


def _first_of(safe: Edit | None, unsafe: Edit) -> Edit:
    return unsafe if safe is None else lambda script, one: safe(script, one) or unsafe(script, one)


def _steps(
    script: BatchScript, findings: list[Finding], current: bytes, failed: set[tuple[str, str]], fixers: dict[str, Edit]
) -> Iterator[tuple[Finding, bytes]]:
    for finding in findings:
        fixer = fixers.get(finding.code)
        if fixer is None or (finding.code, finding.text) in failed:
            continue
        text = fixer(script, finding)
        if text is None or text.encode() == current:
            failed.add((finding.code, finding.text))
        else:
            yield finding, text.encode()


# What hides the rest of a file from sbatch or bash: mended, it may show faults that were there before.
_HIDING = frozenset(
    (
        *("crlf", "shebang-not-first", "shebang-wrong", "no-such-option", "directive-refused", "directive-ignored"),
        *(
            "directive-cut",
            "broken-continuation",
            "unset-variable",
            "command-not-found",
            "sbatch-of-a-program",
            "typographic-sign",
        ),
    )
)


def _codes(path: Path, text: bytes, site: SiteFacts) -> Counter[str]:
    return Counter(one.code for one in diagnosis_of(script_of(path, text, site), ()).findings if not one.path)


def _new(had: Counter[str], has: Counter[str]) -> set[str]:
    return {code for code, count in has.items() if count > had[code]}


def _is_elsewhere(path: Path, text: bytes, site: SiteFacts, finding: Finding, lines: Sequence[str]) -> bool:
    """Return whether a fault is now only in other lines, which were there before: some are told one at a time."""
    script = script_of(path, text, site)
    left = [one for one in diagnosis_of(script, ()).findings if one.code == finding.code and not one.path]
    others = {line for at, line in enumerate(lines, 1) if at != finding.line}
    return all(0 < one.line <= len(script.lines) and script.lines[one.line - 1] in others for one in left)


def _followed_up(
    path: Path,
    text: bytes,
    site: SiteFacts,
    had: Counter[str],
    finding: Finding,
    fixers: dict[str, Edit],
    lines: Sequence[str],
) -> bytes | None:
    """Return the text, mended further where a fault is new; None unless the fault is gone and no other is new."""
    for _ in range(_MOST_FOLLOWING):
        has = _codes(path, text, site)
        new = _new(had, has)
        if has[finding.code] >= had[finding.code] and not _is_elsewhere(path, text, site, finding, lines):
            return None
        if not new or finding.code in _HIDING:
            return text
        script = script_of(path, text, site)
        shown = next((one for one in diagnosis_of(script, ()).findings if one.code in new and one.code in fixers), None)
        again = None if shown is None else fixers[shown.code](script, shown)
        if again is None or again.encode() == text:
            return None
        text = again.encode()
    return None
