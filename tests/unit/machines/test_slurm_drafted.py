"""A cluster file drafted from recorded answers: those of a private Slurm 22.05.8, cut to the lines that are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainjob.contract.errors import UserError
from trainjob.kinds import lookup
from trainjob.kinds.lookup import read_cluster
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.machines.access import ThisMachine
from trainjob.machines.process import Completed
from trainjob.machines.slurm import drafted

SINFO = "gpu*|up|2:00:00|2|8|16384|gpu:4|1-2|1\nshort|up|10:00|2|8|16384|gpu:4|1|1\n"
CONFIG = """\
Configuration data as of 2026-11-21T13:00:00
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/none
PreemptMode             = REQUEUE
SLURM_VERSION           = 22.05.8
"""
PARTITION = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   MaxNodes=2 MaxTime=02:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO PreemptMode=REQUEUE
   State=UP TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE
"""


class Recorded(ThisMachine):
    """Answers as a login node did."""

    name = "login"

    def __init__(
        self, sinfo: str = SINFO, config: str = CONFIG, partition: str = PARTITION, node: str = "", **more: str
    ) -> None:
        self._answers = {"sinfo": sinfo, "config": config, "partition": partition, "node": node, **more}

    def run(self, arguments: Any, **_: Any) -> Completed:
        answer = next((text for word, text in self._answers.items() if word in arguments), None)
        return Completed(tuple(arguments), 0 if answer is not None else 1, (answer or "").encode(), "")


def drafted_file(folder: Path, machine: Recorded, ssh: str | None = None, partition: str | None = None) -> str:
    text = drafted.text("live", machine, ssh, partition)
    (folder / "live.yaml").write_text(text)
    read_cluster(folder / "live.yaml", "live.yaml")
    return text


def test_what_slurm_says_is_in_the_file_and_the_rest_is_named(tmp_path: Path) -> None:
    text = drafted_file(tmp_path, Recorded(), ssh="login")
    assert text.startswith("# live: drafted from Slurm 22.05.8, partition gpu.\nkind: slurm\nssh:\n  host: login\n")
    for line in ("  count: 2", "  accelerators: 4", "  memory_gb: 16", "  max_nodes: 2", "  max_time: 02:00:00"):
        assert f"{line}\n" in text
    assert [key for _, key in lookup.places_to_fill_in(text)] == ["runs_dir"]
    assert "preemption: requeue\n" in text


def test_a_site_that_demands_an_account(tmp_path: Path) -> None:
    text = drafted_file(tmp_path, Recorded(config=CONFIG.replace("Enforce = none", "Enforce = associations,limits")))
    assert [key for _, key in lookup.places_to_fill_in(text)] == ["account", "runs_dir"]
    assert "required_directives: [account]\n" in text


def test_a_default_account_is_enough_where_accounts_are_demanded(tmp_path: Path) -> None:
    machine = Recorded(config=CONFIG.replace("Enforce = none", "Enforce = associations,limits"), sacctmgr="physics\n")
    text = drafted_file(tmp_path, machine)
    assert [key for _, key in lookup.places_to_fill_in(text)] == ["runs_dir"]
    assert "  # account: physics                # optional: your default account" in text


NODE = "NodeName=n{} CPUTot={} RealMemory={} Partitions={} CoreSpecCount={} MemSpecLimit={} ThreadsPerCore=2\n"


@pytest.mark.parametrize(
    ("partition", "nodes", "usable"),
    [
        ("", NODE.format(1, 64, 512000, "x,main", 0, 0), (64, 500)),
        # What is kept for the system, as much as of the node that keeps most; not on other nodes.
        (
            "",
            NODE.format(1, 64, 512000, "main", 2, 2048)
            + NODE.format(2, 64, 512000, "main", 1, 4096)
            + NODE.format(3, 64, 512000, "other", 9, 90000)
            + NODE.format(4, 128, 512000, "main", 9, 90000),
            (60, 496),
        ),
        ("", NODE.format(1, 64, 512000, "main", 2, 0).replace("CPUTot", "CPUEfctv=58 CPUTot"), (58, 500)),
        ("MaxCPUsPerNode=31 MaxMemPerNode=102400", "", (30, 100)),
        ("MaxCPUsPerNode=UNLIMITED MaxMemPerCPU=1024", "", (64, 64)),
        ("MaxMemPerNode=UNLIMITED", "", (64, 500)),
    ],
)
def test_jobs_get_what_slurm_leaves_them_of_a_node(
    tmp_path: Path, partition: str, nodes: str, usable: tuple[int, int]
) -> None:
    machine = Recorded("main*|up|infinite|4|64|512000|(null)|1-infinite|2\n", partition=partition, node=nodes)
    drafted_file(tmp_path, machine)
    node = SlurmCluster.of(read_cluster(tmp_path / "live.yaml")).node
    assert (node.cpus, node.memory_gb) == usable


def test_limits_of_slurm_conf_hold_where_the_partition_has_none(tmp_path: Path) -> None:
    config, partition = (
        f"{CONFIG}MaxMemPerNode           = 8192\n",
        PARTITION.replace("LLN", "MaxMemPerNode=UNLIMITED LLN"),
    )
    assert "  memory_gb: 8\n" in drafted_file(tmp_path, Recorded(config=config, partition=partition))


def test_the_fewest_nodes_of_a_job(tmp_path: Path) -> None:
    drafted_file(tmp_path, Recorded(SINFO.replace("|1-2|", "|2-2|")))
    cluster = SlurmCluster.of(read_cluster(tmp_path / "live.yaml"))
    assert (cluster.limits.min_nodes, cluster.limits.max_nodes) == (2, 2)


def test_a_folder_of_the_users_own_on_a_network_file_system_takes_the_runs(tmp_path: Path) -> None:
    text = drafted_file(tmp_path, Recorded(**{"shared_folder.sh": "lustre\n/scratch/me: and you\n"}))
    assert lookup.places_to_fill_in(text) == ()
    assert read_cluster(tmp_path / "live.yaml").runs_dir == "/scratch/me: and you/trainjob-runs"


def test_nodes_of_several_kinds_with_typed_gres_and_no_limits(tmp_path: Path) -> None:
    sinfo = (
        "main*|up|infinite|4|64|512000|gpu:a100:4(S:0-1)|1-infinite|2\n"
        "main*|up|infinite|2|128|1024000|gpu:h100:8|1-infinite|1\n"
    )
    text = drafted_file(tmp_path, Recorded(sinfo, partition="PartitionName=main MaxTime=UNLIMITED PreemptMode=OFF"))
    assert "# Its nodes are of 2 kinds; these are the most common ones." in text
    assert "  cpus: 64\n  threads_per_core: 2\n" in text
    assert "  type: a100\n" in text
    assert "  memory_gb: 500\n" in text
    assert "limits: {}\n" in text
    assert "PreemptMode is OFF: nobody is preempted here" in text


def test_nodes_without_accelerators(tmp_path: Path) -> None:
    text = drafted_file(tmp_path, Recorded("cpu*|up|1-00:00:00|9|32|64000|(null)|1-infinite|1\n", partition=""))
    assert "  accelerator: cpu\n" in text
    assert "request:" not in text
    assert "  max_time: 1-00:00:00\n" in text


@pytest.mark.parametrize(
    "setting", ["SlurmctldParameters     = preempt_send_user_signal", "PreemptParameters       = send_user_signal"]
)
def test_signals_before_a_preemption(tmp_path: Path, setting: str) -> None:
    config = f"{CONFIG}{setting}\n"
    partition = PARTITION.replace("PreemptMode=REQUEUE", "PreemptMode=CANCEL")
    assert "preemption: user-signal\n" in drafted_file(tmp_path, Recorded(config=config, partition=partition))


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"login has no partition shrt: did you mean short\? It has gpu, short"):
        drafted.text("live", Recorded(), None, "shrt")
    with pytest.raises(UserError, match=r"sinfo on login shows no partition\. Are you allowed to use this cluster\?"):
        drafted.text("live", Recorded(sinfo=""), None, None)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CONFIG, {"version": "22.05", "task_plugin": "none", "accounting": False}),
        (
            "AccountingStorageEnforce = associations,limits,qos\nSLURM_VERSION = 24.11.5\n"
            "TaskPlugin              = task/affinity,task/cgroup\n",
            {"version": "24.11", "task_plugin": "cgroup", "accounting": True},
        ),
    ],
)
def test_how_the_site_runs_slurm_is_read(tmp_path: Path, config: str, expected: dict[str, Any]) -> None:
    drafted_file(tmp_path, Recorded(config=config))
    cluster = read_cluster(tmp_path / "live.yaml", "live.yaml")
    assert isinstance(cluster, SlurmCluster)
    assert {name: getattr(cluster.slurm, name) for name in expected} == expected


def test_the_active_interpreter_is_written_down_because_jobs_have_another_path(tmp_path: Path) -> None:
    active = Recorded(**{"active_python.sh": "/home/u/.venv/bin/python3\n"})
    text = drafted_file(tmp_path, active)
    assert "which each node must have at this path" in text
    assert read_cluster(tmp_path / "live.yaml", "live.yaml").interpreter == "/home/u/.venv/bin/python3"
    assert "python: /other/python" in drafted.text("live", active, None, None, "/other/python")


@pytest.mark.parametrize("end", ["\r", "\x85", "\u2028", "\u2029", "\x0b", "\x0c"], ids=ascii)
def test_no_sign_of_what_slurm_says_ends_a_line_of_the_file(end: str, tmp_path: Path) -> None:
    output = f"x{end}once: {{job: [true]}}"
    machine = Recorded(
        sinfo=SINFO.replace("gpu*", f"{output}*"),
        config=CONFIG.replace("22.05.8", f"22.05.8 {output}"),
        partition=PARTITION.replace("PreemptMode=REQUEUE", f"PreemptMode=OFF{end}once:"),
    )
    text = drafted.text("live", machine, None, None)
    assert text.replace("\n", "").isprintable()
    assert not any(line.startswith("once:") for line in text.splitlines())
