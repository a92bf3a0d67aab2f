"""What the job script says of roles that share hosts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import trainjob


def test_on_hosts_roles_that_share_them_have_cpus_in_proportion_to_their_gpus(tmp_path: Path) -> None:
    roles = {
        "server": {"command": ["serve"], "ready": "file:up", "gpus": 1},
        "train": {"command": ["x"], "needs": ["server"]},
    }
    (tmp_path / "far.yaml").write_text("{kind: hosts, hosts: [a], nodes: {accelerator: gpu, accelerators: 4}}")
    found = trainjob.plan(tmp_path / "far.yaml", roles=roles, hosts=1).render()
    script = found.files[found.script].content.decode()
    assert re.findall(r"--share (\S+)", script) == ["3+1/4", "0+3/4"]


def test_on_hosts_a_server_without_a_gpu_sees_none_and_takes_no_share(tmp_path: Path) -> None:
    roles = {
        "store": {"command": ["redis-server"], "ready": "{host}:{port}", "gpus": 0},
        "train": {"command": ["x"], "needs": ["store"]},
    }
    (tmp_path / "far.yaml").write_text("{kind: hosts, hosts: [a], nodes: {accelerator: gpu, accelerators: 4}}")
    found = trainjob.plan(tmp_path / "far.yaml", roles=roles, hosts=1).render()
    assert b"--share" not in found.files[found.script].content
    job = json.loads(found.files["roles/store/job.json"].content)
    assert job["asked"]["job"]["env"] == {"CUDA_VISIBLE_DEVICES": ""}
