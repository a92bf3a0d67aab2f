"""Tables of gc-monitor and nvidia-smi, read by their headings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainjob.cluster.lookup import find
from trainjob.contract.errors import UserError
from trainjob.submit.devices import asking, gc_monitor, nvidia_smi

# Written by us as published pages show the tool's tables, boards first, then attached processes: no output recorded on
# a pod was at hand. Widths and columns differ by release.
BOARDS = """\
+---------------+---------------------------------------------------------------+
|  gc-monitor   |      Partition: p16 [active] has 16 reconfigurable IPUs       |
+-------------+--------------------+--------+--------------+-------+----+------+
|    IPU-M    |       Serial       |IPU-M SW|Server version| Type  | ID | IPU# |
+-------------+--------------------+--------+--------------+-------+----+------+
|  10.1.5.1   | 0025.0002.8210321  | 2.5.1  |    1.10.1    | M2000 | 0  |  3   |
|  10.1.5.1   | 0025.0002.8210321  | 2.5.1  |    1.10.1    | M2000 | 1  |  2   |
+-------------+--------------------+--------+--------------+-------+----+------+
|  10.1.5.2   | 0025.0001.8210321  | 2.5.1  |    1.10.1    | M2000 | 2  |  1   |
+-------------+--------------------+--------+--------------+-------+----+------+
"""
PROCESSES = """\
+--------------------------------------------------+------------------------+-----------------+
|      Attached processes in partition p16         |          IPU           |      Board      |
+--------+------------------+--------+-------------+----+----------+--------+--------+--------+
|  PID   |     Command      |  Time  |    User     | ID |  Clock   |  Temp  |  Temp  | Power  |
+--------+------------------+--------+-------------+----+----------+--------+--------+--------+
|  4242  |      python      |   3s   |     ml      | 1  | 1330MHz  |  N/A   | 25.0 C | 92.4 W |
+--------+------------------+--------+-------------+----+----------+--------+--------+--------+
"""
NOBODY = "|  No attached processes in partition p16 |\n"


def test_boards_and_who_uses_them() -> None:
    found = gc_monitor.parse(BOARDS + PROCESSES)
    assert [one.device for one in found] == ["IPU 0", "IPU 1", "IPU 2"]
    assert [one.where for one in found] == ["p16 · 10.1.5.1", "p16 · 10.1.5.1", "p16 · 10.1.5.2"]
    assert [(one.user, one.process, one.detail) for one in found] == [
        ("", "", ""),
        ("ml", "4242 python 3s", "1330MHz · 92.4 W"),
        ("", "", ""),
    ]


def test_boards_that_nobody_uses_and_processes_without_boards() -> None:
    assert [one.process for one in gc_monitor.parse(BOARDS + NOBODY)] == ["", "", ""]
    assert [(one.device, one.user) for one in gc_monitor.parse(PROCESSES)] == [("IPU 1", "ml")]
    assert gc_monitor.parse("no table") == []


def test_gpus_and_who_uses_them() -> None:
    gpus = "0, GPU-aa, NVIDIA A100-SXM4-40GB, 1024, 40960, 97\n1, GPU-bb, NVIDIA A100-SXM4-40GB, 3, 40960, 0\n"
    found = nvidia_smi.parse(gpus, "GPU-aa, 77, /usr/bin/python, 900\nGPU-aa, 78, train, 100\n")
    assert [one.device for one in found] == ["GPU 0", "GPU 1"]
    assert found[0].detail == "1024 of 40960 MiB · 97 %"
    assert [one.process for one in found] == ["77 /usr/bin/python (900 MiB), 78 train (100 MiB)", ""]
    assert json.loads(json.dumps(found[1].as_json()))["where"] == "NVIDIA A100-SXM4-40GB"


def tool(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_pod_is_asked_by_gc_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").write_text(BOARDS + PROCESSES)
    tool(tmp_path, "gc-monitor", f"cat {tmp_path}/table; exit 0", monkeypatch)
    assert len(asking.devices("pod16", find("pod16").cluster)) == 3


def test_what_can_not_be_asked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError, match="has no gc-monitor, by which cluster pod16 is asked"):
        asking.devices("pod16", find("pod16").cluster)
    tool(tmp_path, "gc-monitor", "echo terminate called >&2; exit 134", monkeypatch)
    with pytest.raises(UserError, match=r"exited with 134: terminate called\. Is a partition active"):
        asking.devices("pod16", find("pod16").cluster)
    tool(tmp_path, "nvidia-smi", "echo no devices were found; exit 6", monkeypatch)
    with pytest.raises(UserError, match="says no devices were found: is a GPU there"):
        asking.devices("local", find("local").cluster)
