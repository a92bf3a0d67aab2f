"""Where run directories lie on a machine: the whole path, and whether it can be written."""

from __future__ import annotations

from trainjob.contract.errors import UserError
from trainjob.submit.machine import Machine

# Nothing is made: the nearest folder above that is there must take a new one.
_RESOLVE = """
case $1 in "~") set -- "$HOME" ;; "~/"*) set -- "$HOME/${1#??}" ;; esac
case $1 in /*) ;; *) exit 42 ;; esac
up=$1
while [ ! -e "$up" ]; do up=$(dirname -- "$up"); done
if [ ! -d "$up" ]; then echo "$up"; exit 40; fi
if [ ! -w "$up" ] || [ ! -x "$up" ]; then echo "$up"; exit 41; fi
cd -- "$up" || exit 41
there=$(pwd -P)
printf '%s%s\\n' "${there%/}" "${1#"${up%/}"}"
"""
_WHY = {
    40: "{0} is not a folder. Set runs_dir to one",
    41: "you may not write in {0}. Set runs_dir to a folder that you may write, on storage that all nodes share",
    42: "it is no whole path. Write it from / or ~/ on",
}


def resolved(machine: Machine, runs_dir: str) -> str:
    """Return the whole path of `runs_dir` on the machine, which may yet have to be made. Raises UserError."""
    ended = machine.run(["sh", "-c", _RESOLVE, "sh", runs_dir], check=False)
    if ended.code == 0:
        return ended.text.rstrip("\n")
    why = _WHY.get(ended.code, ended.stderr.strip() or "it can't be looked at")
    raise UserError(f"runs_dir {runs_dir} on {machine.name}: {why.format(ended.text.strip())}")
