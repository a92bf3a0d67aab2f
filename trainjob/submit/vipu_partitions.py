"""The partition that a run has made, where its script could not remove it."""

from __future__ import annotations

from typing import Any

from trainjob.contract import job as jobs
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.submit.machine import Machine

# The job script notes in `partition` what was not there before it began: that, and nothing else, is the run's own.
# So does each task of an array, in its own folder; and under Slurm in `.vipu` where the nodes have the program.
_REMOVE = """
if [ -n "$2" ]; then export VIPU_CLI_API_HOST=$2; fi
code=0
for folder in "$1" "$1"/tasks/*; do
  cd "$folder" 2>/dev/null && [ -s partition ] || continue
  name=$(cat partition) vipu=$(cat .vipu 2>/dev/null)
  command -v "${vipu:=vipu}" >/dev/null 2>&1 || vipu=vipu
  if ! command -v "$vipu" >/dev/null 2>&1; then
    echo "partition $name: there is no vipu here" >&2
    code=1
  elif "$vipu" get partition "$name" >/dev/null 2>&1 && ! "$vipu" remove partition "$name"; then
    code=1
  else
    rm -f partition
  fi
done
exit "$code"
"""


def remove_own(machine: Machine, folder: str, paths: RunPaths) -> None:
    """Remove the partitions that the run noted as its own, if it did. Raises UserError where that can't be done."""
    if not paths.job.is_file():
        return  # a task of an array that has not begun
    vipu: dict[str, Any] | None = jobs.read(paths.job).asked["cluster"]["file"].get("vipu")
    if not vipu:
        return
    ended = machine.run(["sh", "-c", _REMOVE, "sh", folder, vipu.get("server") or ""], check=False)
    if ended.code != 0:
        raise UserError(
            f"run {paths.id} has ended, and on {machine.name} its own partition can't be removed: "
            f"{ended.stderr.strip()}. Do so where vipu works: vipu remove partition NAME"
        )
