"""What each host of a pod has, as it says itself: one command a host, asked from the launch host."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainjob.contract import manifest, tasks
from trainjob.contract.errors import UserError
from trainjob.submit.machine import Machine
from trainjob.submit.poprun.processes import over_ssh

if TYPE_CHECKING:
    from trainjob.cluster.models import PodCluster
    from trainjob.render.request import Request

# Lines of `name=value`. Whatever is not there says nothing: a host that lacks all of it still answers.
_FACTS = """
at_home() { case $1 in "~/"*) printf '%s' "$HOME/${1#??}" ;; *) printf '%s' "$1" ;; esac; }
sdk=$(at_home "$1") venv=$(at_home "$2") network=$3 data=$(at_home "$4") cache=$(at_home "$5") runs=$(at_home "$6")
shift 6
say() { printf '%s=%s\\n' "$1" "$2"; }
say host "$(hostname)"
if [ -n "$sdk" ]; then
  for folder in "$sdk"/poplar-*/; do if [ -r "$folder/enable.sh" ]; then say sdk "$(basename "$folder")"; fi; done
  . "$sdk"/poplar-*/enable.sh >/dev/null 2>&1
  . "$sdk"/popart-*/enable.sh >/dev/null 2>&1
fi
if command -v poprun >/dev/null 2>&1; then say poprun yes; fi
if [ -n "$venv" ] && [ -x "$venv/bin/python" ]; then
  say venv yes
  "$venv/bin/python" - <<'PYTHON' 2>/dev/null
from importlib.metadata import PackageNotFoundError, version
for name in ("torch", "poptorch"):
    try:
        print("%s=%s" % (name, version(name)))
    except PackageNotFoundError:
        pass
PYTHON
fi
case $network in
  '') ;;
  */*) say network "$(ip -o -4 addr show to "$network" 2>/dev/null | head -n 1 | cut -d ' ' -f 2)" ;;
  *) if [ -e "/sys/class/net/$network" ]; then say network "$network"; fi ;;
esac
if [ -n "$data" ] && [ -r "$data" ]; then say data "$(sha256sum <"$data" | cut -d ' ' -f 1)"; fi
while [ -n "$cache" ] && [ ! -d "$cache" ]; do cache=$(dirname "$cache"); done
if [ -n "$cache" ]; then say cache_mb "$(df -Pm "$cache" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"; fi
if [ -d "$runs" ] && [ -w "$runs" ]; then say runs "$(stat -c '%i' "$runs")"; fi
say memlock "$(ulimit -l)"
for host in "$@"; do
  said=$(ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 -- "$host" true 2>&1 </dev/null) ||
    say unreached "$host: $(printf '%s' "$said" | tail -n 1)"
done
exit 0
"""
_ANSWER_S = 120.0


@dataclass(frozen=True)
class Host:
    """One host, as it answered; `why` says why it did not."""

    name: str
    facts: Mapping[str, str]
    unreached: tuple[str, ...] = ()  # hosts that it can't log in to, each with the reason
    why: str | None = None


def hosts(machine: Machine, request: Request, cluster: PodCluster) -> list[Host]:
    """Return what every host of the job says, the launch host being `machine`. Never raises for a host that is down."""
    names = [host.name for host in request.plan.topology.hosts]
    if cluster.host_names is None or len(names) == 1:
        return [_ask(machine, names[0], _words(request, cluster, ()), direct=True)]
    words = _words(request, cluster, names)
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda name: _ask(machine, name, words, direct=False), names))


def _words(request: Request, cluster: PodCluster, names: tuple[str, ...] | list[str]) -> list[str]:
    sdk = cluster.sdk
    places = [
        (sdk.path if sdk else None) or "",
        (sdk.venv if sdk else None) or "",
        cluster.network.interface or "",
        _manifest(request, cluster) or "",
        cluster.poprun.executable_cache or "",
        cluster.runs_dir or "",
    ]
    return ["sh", "-c", _FACTS, "sh", *places, *names]


def data_set(request: Request) -> str | None:
    """Return the name of the data set that must be prepared on every host; None where none has to be."""
    facts = tasks.facts(request.job.task or "digits-cnn")
    name = request.job.data or (facts.data if facts else None)
    # Our own digits travel with the run's code, and what is made up is made up there.
    return None if request.job.command or name in (None, manifest.MADE_UP, "digits") else name


def _manifest(request: Request, cluster: PodCluster) -> str | None:
    name = data_set(request)
    return None if name is None or cluster.data_dir is None else f"{cluster.data_dir}/{name}/manifest.json"


def _ask(machine: Machine, name: str, words: list[str], *, direct: bool) -> Host:
    try:
        said = machine.run(words if direct else over_ssh(name, words), timeout_s=_ANSWER_S).text
    except UserError as error:
        return Host(name, {}, why=str(error))
    pairs = [line.partition("=") for line in said.splitlines() if "=" in line]
    unreached = tuple(value for key, _, value in pairs if key == "unreached")
    return Host(name, {key: value for key, _, value in pairs if key != "unreached"}, unreached)
