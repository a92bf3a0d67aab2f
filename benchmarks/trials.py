"""Runs tests and histories in forks of one process, which has loaded what all of them load but nothing of ours.

For `benchmarks.mutants`, which starts it in a copy of the repository: `python -m benchmarks.trials` reads lines of
JSON, [WORDS, SECONDS], and prints exit codes, null for what did not end in time. WORDS are `pytest` and its arguments,
or `reached` and those of `benchmarks.reached`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys

_LOADED = ("pytest", "xdist.plugin", "pytest_timeout", "hypothesis", "yaml", "jinja2", "typer", "rich.console", "torch")


def _trial(words: list[str]) -> int:
    sys.argv = words
    if words[0] == "pytest":
        import pytest

        return int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *words[1:]]))
    from benchmarks import reached

    return reached.main()


def _forked(words: list[str], limit_s: float) -> int | None:
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            code = _trial(words)
        os._exit(code)
    handle = os.pidfd_open(pid)
    ended, _, _ = select.select([handle], [], [], limit_s)
    os.close(handle)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    """Answer each line until there are no more."""
    for name in _LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_forked(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
