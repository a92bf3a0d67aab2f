"""What the machine that hands a job over has: interpreter, torch, program, data, image, secrets, runs_dir. One call."""

from __future__ import annotations

from collections.abc import Iterator

from trainjob.cluster.models import SlurmCluster, interpreter, ipu_place
from trainjob.contract import manifest, tasks
from trainjob.contract.errors import UserError
from trainjob.render.request import Request
from trainjob.submit import runs_folder
from trainjob.submit.checking.problem import Problem, of_error
from trainjob.submit.machine import Machine

# Words in: interpreter, program, manifest, image, secrets file; an empty one is not looked at. A line out for each
# fact. Of a secrets file only line numbers come out.
_LOOK = r"""
home() { case $1 in "~") set -- "$HOME" ;; "~/"*) set -- "$HOME/${1#??}" ;; esac; printf '%s\n' "$1"; }
runs() {
  case $1 in */*) [ ! -d "$1" ] && [ -x "$1" ]; return ;; esac
  # Not `command -v`, which finds what the shell itself has: a rank is started without one.
  (IFS=:; for folder in $PATH; do [ ! -d "$folder/$1" ] && [ -x "$folder/$1" ] && exit 0; done; exit 1)
}
if [ -n "$1" ]; then
  python=$(home "$1")
  if runs "$python"; then
    look='import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'
    "$python" -c "$look" </dev/null >/dev/null 2>&1 || echo "no torch"
  else
    echo "no python"
  fi
fi
if [ -n "$2" ]; then runs "$(home "$2")" || echo "no program"; fi
if [ -n "$3" ]; then [ -f "$(home "$3")" ] || echo "no data"; fi
if [ -n "$4" ]; then [ -e "$(home "$4")" ] || echo "no image"; fi
if [ -n "$5" ]; then
  secrets=$(home "$5")
  if [ ! -f "$secrets" ]; then echo "no secrets"; exit 0; fi
  echo "mode $(ls -ldn -- "$secrets" | cut -c 1-10)"
  if [ -r "$secrets" ]; then
    grep -nvE '^[[:space:]]*(#|$)|^[A-Za-z_][A-Za-z0-9_]*=' <"$secrets" | sed 's/^\([0-9]*\):.*/malformed \1/'
  else
    echo "unreadable secrets"
  fi
fi
exit 0
"""


def problems(machine: Machine, request: Request, cluster: SlurmCluster) -> Iterator[Problem]:
    """Yield what is missing on the machine. Raises what the machine raises when it can't be reached."""
    asked = _asked(request, cluster)
    said = machine.run(["sh", "-c", _LOOK, "sh", *asked.values()]).text.splitlines()
    for line in said:
        yield from _problem(line, machine.name, request, asked)
    if cluster.runs_dir:
        try:
            runs_folder.resolved(machine, cluster.runs_dir)
        except UserError as error:
            yield of_error("runs-dir", error)


def _asked(request: Request, cluster: SlurmCluster) -> dict[str, str]:
    # Inside of a container, and behind a prologue, other programs may be found than here.
    in_container = cluster.container.runtime != "none"
    python = interpreter(cluster) or ("" if cluster.prologue else "python3")
    program = request.job.command[0] if request.job.command else ""
    is_elsewhere = in_container or (bool(cluster.prologue) and "/" not in program)
    image = cluster.container.image or ""
    return {
        "python": "" if in_container or request.job.command else python,
        "program": "" if is_elsewhere or (not program.startswith("/") and "/" in program) else program,
        "data": _manifest(request, cluster),
        "image": image if in_container and image.startswith(("/", "~/")) else "",
        "secrets": cluster.secrets_file or "",
    }


def data_name(request: Request) -> str | None:
    """Return the prepared data set that the task reads; None where it reads none, or one that comes with us."""
    facts = tasks.facts(request.job.task or "digits-cnn")
    name = request.job.data or (facts.data if facts else None)
    if request.job.command or name in (None, manifest.MADE_UP) or manifest.find(name, None):
        return None
    return name


def _manifest(request: Request, cluster: SlurmCluster) -> str:
    name = data_name(request)
    return "" if name is None else f"{cluster.data_dir or ''}/{name}/{manifest.FILE_NAME}"


def _key(request: Request) -> str:
    return "python:" if ipu_place(request.cluster) is None else "python: or sdk.venv:"


def _problem(line: str, machine: str, request: Request, asked: dict[str, str]) -> Iterator[Problem]:
    word, _, value = line.partition(" ")
    secrets = f"secrets_file {asked['secrets']} on {machine}"
    if line == "no python":
        text = f"python: {asked['python']} is not an interpreter that can be started on {machine}"
        yield Problem("interpreter", text, f"Give the path of one that has torch ({_key(request)} in the cluster file)")
    elif line == "no torch":
        text = f"{asked['python']} on {machine} has no torch, which a task needs"
        yield Problem("torch", text, f"Install it there, or name another in the cluster file ({_key(request)})")
    elif line == "no program":
        text = f"command {asked['program']!r} is not a program that {machine} has"
        yield Problem("command", text, "After -- comes a program and its arguments, as in: -- python train.py")
    elif line == "no data":
        text = f"data set {data_name(request)} is not prepared: {machine} has no {asked['data']}"
        yield Problem("data", text, f"There: trainjob data prepare {data_name(request)}; data_dir is its folder")
    elif line == "no image":
        yield Problem("image", f"container.image {asked['image']} is not there on {machine}", "Put it there")
    elif line == "no secrets":
        yield Problem("secrets", f"{secrets} does not exist", "Make it, one NAME=VALUE a line, or take the key out")
    elif line == "unreadable secrets":
        yield Problem("secrets", f"{secrets} can't be read", "It must be yours")
    elif word == "mode" and value[4:] != "------":
        cure = f"Over there: chmod 600 {asked['secrets']}"
        yield Problem("secrets", f"{secrets} has mode {value}: others may read it; needed is -rw-------", cure)
    elif word == "malformed":
        yield Problem("secrets", f"{secrets}, line {value}: expected NAME=VALUE", "Write it so, or begin it with #")
