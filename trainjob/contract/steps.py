"""What a job does once before its ranks start, and by how much an attempt may ask for more than the one before."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from trainjob.contract.errors import RuleError

JOB, NODE = SCOPES = ("job", "node")
TIMEOUT_S = 3600.0
# It is part of file names, and of messages that job scripts search for a scheduler's words.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MORE = re.compile(r"\+([0-9]{1,4})%")


class OnceStep(NamedTuple):
    """One step. `command` is a program and its arguments, of a shell line `bash -c LINE`."""

    scope: str
    number: int  # from 1, in its scope
    name: str
    command: List[str]
    timeout_s: float
    lock: Optional[str]  # a folder: no other run's step that names it runs meanwhile
    shell: Optional[str]  # the line, where the job file has one

    def __str__(self) -> str:
        """Return it as messages name it."""
        return "step %s (once.%s)" % (self.name, self.scope)


def parse(once: Mapping[str, List[Dict[str, Any]]]) -> List[OnceStep]:
    """Return the steps of a job, those of the job before those of each node. Raises RuleError."""
    return [_step(scope, number, dict(keys)) for scope in SCOPES for number, keys in enumerate(once.get(scope, []), 1)]


def _step(scope: str, number: int, keys: Dict[str, Any]) -> OnceStep:
    where = "%s[%d]" % (scope, number - 1)
    words, shell, name, lock = (keys.get(key) for key in ("run", "shell", "name", "lock"))
    timeout_s = keys.get("timeout_s", TIMEOUT_S)
    if (words is None) == (shell is None):
        both = "neither run nor shell" if words is None else "both run and shell"
        cure = "give run: [hf, download, org/model], or as a line for bash shell: …"
        raise RuleError("%s has %s, and a step has one of them" % (where, both), cure)
    if words is not None and (not isinstance(words, list) or not words):
        raise RuleError(
            "%s.run is %r, expected a list of words" % (where, words), "write it as [hf, download, org/model]"
        )
    if shell is not None and (not isinstance(shell, str) or not shell.strip()):
        raise RuleError("%s.shell is %r, expected a line for bash" % (where, shell), "write a line, or run: with words")
    if not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
        raise RuleError(
            "%s.timeout_s is %r, expected seconds, more than 0" % (where, timeout_s), "write timeout_s: 3600"
        )
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        expected = "letters, digits, dots, dashes and underscores, at most 64"
        raise RuleError("%s.name is %r, expected %s" % (where, name, expected), "choose another name, or leave it out")
    if lock is not None and (not isinstance(lock, str) or not lock.startswith(("/", "~/"))):
        expected = "the whole path of a folder, from / or ~/ on"
        raise RuleError("%s.lock is %r, expected %s" % (where, lock, expected), "write it as /shared/hf/.trainjob-lock")
    program = _NAME.match(os.path.basename(words[0]) if words else "shell")
    return OnceStep(
        scope,
        number,
        name or (program[0] if program else "step"),
        ["bash", "-c", shell] if shell else list(words or ()),
        float(timeout_s),
        lock,
        shell,
    )


class Retry(NamedTuple):
    """By how many percent the next attempt asks for more memory or time, and how many attempts may."""

    mem: Optional[int]
    time: Optional[int]
    attempts: int


def parse_retry(values: Mapping[str, object]) -> Retry:
    """Return what `retry` states. Raises RuleError."""
    more = {}
    for name in ("mem", "time"):
        stated = values.get(name)
        match = None if stated is None else _MORE.fullmatch(str(stated))
        if stated is not None and (match is None or int(match[1]) == 0):
            raise RuleError("%s is %s, expected a share to add" % (name, stated), 'write %s: "+50%%"' % name)
        more[name] = int(match[1]) if match else None
    attempts = values.get("attempts", 1)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise RuleError("attempts is %s, expected a whole number, at least 1" % (attempts,), "write attempts: 2")
    if values and more["mem"] is None and more["time"] is None:
        raise RuleError("says neither mem nor time", 'give one of them: {mem: "+50%"}')
    return Retry(more["mem"], more["time"], attempts)
