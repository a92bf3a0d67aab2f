"""Gives the nodes of a private Slurm networks of their own: an address each, and a link that can be slow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.slurm_site import DESCRIPTION, Site, site
from tests.support.waiting import until
from trainjob.rehearse.slurm import configuration, private

INTERFACE = "site0"
_NODE = Path(private.__file__).with_name("node.sh")
# Restarts the daemons. A node's own name means 127.0.1.1 to it, as node.sh has it, and the others know its address.
_APART = f"""
set -eu
PATH=$PATH:/usr/sbin:/sbin folder=$1 number=0
shift
mount -t tmpfs none /run/netns
mkdir /run/netns/cgroup
mount --rbind /sys/fs/cgroup /run/netns/cgroup
ip link add bridge0 type bridge
ip address add 10.213.79.250/24 dev bridge0
ip link set bridge0 up
for daemon in slurmctld $(printf 'slurmd-%s ' "$@"); do
  pid=$(cat "$folder/private/$daemon.pid")
  kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
done
echo 127.0.0.1 localhost login >"$folder/hosts"
for node in "$@"; do
  number=$((number + 1))
  echo "10.213.79.$number $node" >>"$folder/hosts"
  sed -i "/^NodeName=$node /s/NodeAddr=[^ ]*/NodeAddr=10.213.79.$number/" "$folder/slurm.conf"
  ip netns add "$node"
  ip link add "to-$node" type veth peer name {INTERFACE} netns "$node"
  ip link set "to-$node" master bridge0 up
  ip -n "$node" address add "10.213.79.$number/24" dev {INTERFACE}
  ip -n "$node" link set {INTERFACE} up
  ip -n "$node" link set lo up
  ip -n "$node" route add default via 10.213.79.250
done
. "$folder/settings"
if [ -n "$root" ]; then chroot "$folder/root" slurmctld; else slurmctld; fi
# The /sys of a network shows its interfaces, and has no control groups, which slurmd 22.05 looks for. A busy machine
# does not reach the 10 Gbit/s that the kernel states of such a link.
echo 1000 >/run/netns/speed
begin='mount --rbind /run/netns/cgroup /sys/fs/cgroup; mount --bind /run/netns/speed /sys/class/net/{INTERFACE}/speed
exec sh {_NODE} "$@"'
for node in "$@"; do
  ip netns exec "$node" unshare --uts --mount --propagation slave sh -c "$begin" sh "$folder" "$node"
done
"""


@contextmanager
def networked_site(folder: Path, sshd: Path, release: str | None = None) -> Iterator[Site]:
    """Yield a site whose nodes have a network each; nothing of it is left afterwards."""
    Path("/run/netns").mkdir(exist_ok=True)  # `ip netns` looks there; its content is private to the site
    reachable = {"SlurmctldHost": f"localhost({configuration.ADDRESS})"}
    described = dataclasses.replace(DESCRIPTION, settings=reachable, release=release or DESCRIPTION.release)
    with site(folder, sshd, described) as made:
        nodes = made.slurm.description.node_names
        made.slurm.run_as_root(["sh", "-c", _APART, "sh", str(made.slurm.folder), *nodes])
        until(lambda: made.slurm.idle_nodes() == {*nodes}, "the nodes to come back")
        yield made


def slow_down(made: Site, node: str, megabit: int) -> None:
    """Let a node send and receive no more than that each second."""
    pace = ["root", "tbf", "rate", f"{megabit}mbit", "burst", "128k", "latency", "50ms"]
    made.slurm.run_as_root(["tc", "qdisc", "add", "dev", f"to-{node}", *pace])
    made.slurm.run_as_root(["ip", "netns", "exec", node, "tc", "qdisc", "add", "dev", INTERFACE, *pace])
