from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import each
from trainjob.cluster.faults import ClusterError, JobError
from trainjob.cluster.reading import job_from_text, read_job
from trainjob.contract.errors import UserError
from trainjob.contract.secrets import SecretsError
from trainjob.kinds.lookup import cluster_from_text, read_cluster
from trainjob.kinds.slurm.model import SlurmCluster
from trainjob.planning.rules import Refusal
from trainjob.records.job import ContractError

POD = "kind: ipu-pod\nipus: 64\nhosts: pod-host[1-4]\n"
SLURM = "kind: slurm\nnodes: {count: 8, cpus: 64}\n"


def cluster_errors(text: str) -> list[str]:
    with pytest.raises(ClusterError) as caught:
        cluster_from_text(text, "c.yaml")
    return str(caught.value).split("\n")


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("partition: gpu", "partition: is not a key: an option of sbatch is written under directives: directives: {p"),
        ("time: 1", "time: is not a key: sbatch's time is stated by time_limit: of the cluster file, or --time-limit"),
        ("runs_dr: /x", "runs_dr: is not a key: is runs_dir meant?"),
    ],
)
def test_an_option_of_sbatch_that_is_no_key_is_shown_its_place(line: str, cure: str) -> None:
    (said,) = cluster_errors(f"kind: slurm\nnodes: {{count: 1, cpus: 4}}\n{line}")
    assert said.startswith(f"c.yaml:3: {cure}")


def job_errors(text: str) -> list[str]:
    with pytest.raises(JobError) as caught:
        job_from_text(text, "j.yaml")
    return str(caught.value).split("\n")


@pytest.mark.parametrize("error", [ClusterError, JobError, Refusal, ContractError, SecretsError])
def test_every_error_of_the_user_has_one_base(error: Any) -> None:
    assert issubclass(error, UserError)


YAML_MESSAGES = {
    "unclosed": ("kind: local\nenv: {A: 1\n", "c.yaml:3:1: this is not YAML: while parsing a flow mapping (line 2), "),
    "tab": ("kind: local\n\tenv: 1", "c.yaml:2:1: this is not YAML: while scanning for the next token, found "),
    "two colons": ("kind: local: x", "c.yaml:1:12: this is not YAML: mapping values are not allowed here"),
    "unknown alias": ("kind: *x", "c.yaml:1:7: this is not YAML: found undefined alias 'x'"),
    "two documents": ("kind: local\n---\nkind: local", "c.yaml:2:1: this is not YAML: expected a single document"),
    "control": ("kind: local\nenv: {A: \0}", "c.yaml:2: this is not YAML: the character U+0000 may not be in it"),
    "empty": ("# nothing\n", "c.yaml:1: is empty: expected keys with values"),
    "list": ("\n- kind: local", "c.yaml:2: holds a list at its top: expected keys with values"),
    "word": ("local", "c.yaml:1: holds one value at its top: expected keys with values"),
    "merges": (
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30)),
        "c.yaml:1: aliases (*) and merges (<<) make it larger than 1,000,000 values: write what is needed",
    ),
    "aliases": (
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)),
        "c.yaml:1: aliases (*) and merges (<<) make it larger than 1,000,000 values: write what is needed",
    ),
    "deep": ("[" * 3000, "c.yaml:1: is nested too deeply to be read"),
    "merge": ("<<: [1]", "c.yaml:1:6: this is not YAML: while constructing a mapping, expected a mapping"),
}


@each(("text", "message"), YAML_MESSAGES.values())
def test_what_is_not_yaml_is_refused_with_its_place(text: Any, message: Any) -> None:
    assert [line for line in cluster_errors(text) if line.startswith(message)], cluster_errors(text)


MESSAGES = {
    "no kind": ("runs_dir: x", "c.yaml:1: kind: is missing: give one of ipu-pod, slurm, hosts, local"),
    "unknown kind": (
        "kind: ipupod",
        "c.yaml:1: kind: read 'ipupod', expected one of ipu-pod, slurm, hosts, local: is ipu-pod meant?",
    ),
    "kind of no text": ("\nkind: 3", "c.yaml:2: kind: read 3, expected one of ipu-pod, slurm, hosts, local"),
    "misspelt": (POD + "vipu: {sever: x}", "c.yaml:4: vipu.sever: is not a key: is server meant?"),
    "misspelt at the top": (POD + "run_dir: /x", "c.yaml:4: run_dir: is not a key: is runs_dir meant?"),
    "like nothing": (POD + "ssh: {host: a, zzz: 1}", "c.yaml:4: ssh.zzz: is not a key: the keys are host, user"),
    "twice": (POD + "\nipus: 4", "c.yaml:5: ipus: is given twice, in line 2 and in line 5: take one out"),
    "wrong type": ("kind: ipu-pod\nhosts: a\nipus: four", 'c.yaml:3: ipus: read "four", expected a whole number'),
    "number with a zero in front": (
        "kind: ipu-pod\nhosts: a\nipus: 08",
        'c.yaml:3: ipus: read "08", expected a whole number: write 8',
    ),
    "quoted number": (
        'kind: ipu-pod\nhosts: a\nipus: "4"',
        'c.yaml:3: ipus: read "4", expected a whole number: take the quotes away, 4',
    ),
    "bool for a number": (POD + "numa_nodes: true", "c.yaml:4: numa_nodes: read true, expected a whole number"),
    "too small": ("kind: ipu-pod\nhosts: a\nipus: 0", "c.yaml:3: ipus: read 0, expected at least 1"),
    "too large": (POD + "network: {port: 70000}", "c.yaml:4: network.port: read 70000, expected at most 65535"),
    "float for text": (
        POD + "sdk: {version: 3.30}",
        'c.yaml:4: sdk.version: read 3.30, expected text: quote it, "3.30"',
    ),
    "no release": (POD + "sdk: {version: new}", 'c.yaml:4: sdk.version: read "new", expected a release: "3.3.0"'),
    "one value for keys": (POD + "sdk: 3", "c.yaml:4: sdk: read 3, expected keys with values"),
    "no value": (POD + "vipu:\n", "c.yaml:4: vipu: read nothing, expected keys with values: give a value, or take"),
    "missing inside": (
        POD + "sdk:\n  path: /x",
        'c.yaml:4: sdk.version: is missing: add it. SDK release, quoted: "3.3.0".',
    ),
    "no hosts": ("kind: ipu-pod\nipus: 4", "c.yaml:1: hosts: is missing: give hosts: pod-host[1-4], or host_count: 4"),
    "hosts against count": (
        POD + "host_count: 3",
        "c.yaml:4: host_count: is 3 and hosts names 4 hosts: take host_count out",
    ),
    "host range": (
        "kind: ipu-pod\nipus: 4\nhosts: pod-host[1-4",
        "c.yaml:3: hosts: 'pod-host[1-4' opens a [ at character 9 and never closes it: write ]",
    ),
    "host range in a list": (
        "kind: ipu-pod\nipus: 4\nhosts: [a, 'b[2-1]']",
        "c.yaml:3: hosts: 'b[2-1]' has the range 2-1, which runs backwards: write 1-2",
    ),
    "no host name": (
        "kind: ipu-pod\nipus: 4\nhosts:\n- a\n- 1",
        'c.yaml:5: hosts[1]: read 1, expected text: quote it, "1"',
    ),
    "choice": (
        SLURM + "request: gress",
        "c.yaml:3: request: read \"gress\", expected 'gres', 'gpus-per-node', 'ipus' or",
    ),
    "accelerators": (
        "kind: slurm\nnodes:\n  count: 8\n  cpus: 64\n  accelerator: gpu",
        "c.yaml:2: nodes.accelerators: is 0 and accelerator is gpu: cpu nodes have 0, gpu and ipu nodes at least 1",
    ),
    "local accelerators": (
        "kind: local\naccelerators: 2",
        "c.yaml:2: accelerators: is 2 and accelerator is cpu: cpu means 0, gpu means at least 1",
    ),
    "no image": (
        SLURM + "container: {runtime: docker}",
        "c.yaml:3: container.image: is missing, and runtime is docker: give the image, or runtime: none",
    ),
    "option with dashes": (
        SLURM + "directives: {--qos: a}",
        'c.yaml:3: directives.--qos: read "--qos", expected an sbatch option by its long name, without the dashes',
    ),
    "two lines": (
        SLURM + 'directives: {comment: "a\\nb"}',
        'c.yaml:3: directives.comment: read "a\\nb", expected one line of text that is not empty',
    ),
    "fraction": (
        SLURM + "directives: {mem: 1.5}",
        "c.yaml:3: directives.mem: read 1.5, expected text or a whole number or",
    ),
    "list in a choice": (
        SLURM + "directives: {mem: [a]}",
        "c.yaml:3: directives.mem: read a list, expected text or a whole",
    ),
    "no time": (SLURM + "time_limit: soon", 'c.yaml:3: time_limit: read "soon", expected a time as Slurm writes it'),
    "interface": (
        POD + "network: {interface: eno1 --mca x}",
        'c.yaml:4: network.interface: read "eno1 --mca x", expected a network interface (eno1) or a CIDR (10.5.0.0/16)',
    ),
    "cidr": (
        POD + "network: {interface: 10.5.0.0/99}",
        'c.yaml:4: network.interface: read "10.5.0.0/99", expected an address with its prefix length, '
        "or the name of an interface: write it as 10.5.0.0/16, or as eno1",
    ),
    "a dash": (POD + "ssh: {host: -oX}", 'c.yaml:4: ssh.host: read "-oX", expected one word that begins with no dash'),
    "rank name": (
        POD + "env: {RANK: 1}",
        "c.yaml:4: env.RANK: RANK is set by the launcher, to a different value for each rank: take it",
    ),
    "our name": (POD + "env: {TRAINJOB_X: 1}", "c.yaml:4: env.TRAINJOB_X: TRAINJOB_X begins with TRAINJOB_, and these"),
    "bash's name": (
        POD + "env: {IFS: 1}",
        "c.yaml:4: env.IFS: IFS is one of bash's own names, which a job script can't pass",
    ),
    "no name": (
        POD + "env: {A B: 1}",
        'c.yaml:4: env.A B: read "A B", expected a name of letters, digits and underscores',
    ),
    "boolean in env": (POD + "env: {A: true}", 'c.yaml:4: env.A: read true, expected text: quote it, "true"'),
    "nothing in env": (
        POD + "env: {A: }",
        "c.yaml:4: env.A: read nothing, expected text: give a value, or take the key out",
    ),
    "NUL": (POD + 'env: {A: "\\0"}', 'c.yaml:4: env.A: read "\\u0000", expected text without the character NUL'),
    "surrogate": (
        POD + 'env: {A: "\\ud800"}',
        'c.yaml:4: env.A: read "\\ud800", expected text of whole Unicode characters',
    ),
    # What YAML 1.1 takes for something else.
    "sexagesimal": (
        SLURM + "time_limit: 24:00:00",
        'time_limit: YAML takes 24:00:00 for the number 86400: quote it, "24:0',
    ),
    "off": (SLURM + "directives: {exclusive: off}", 'YAML takes off for false: write false, or quote it, "off"'),
    "Norway": (
        SLURM + "directives: {partition: no}",
        "directives.partition: YAML takes no for false: write false, or q",
    ),
    "on": (SLURM + "directives: {exclusive: on}", 'YAML takes on for true: write true, or quote it, "on"'),
    "octal": (
        SLURM + "directives: {account: 0123}",
        'YAML takes 0123 for the number 83: quote it, "0123", or write 83',
    ),
    "date": (SLURM + "directives: {begin: 2030-01-01}", 'YAML takes 2030-01-01 for a date: quote it, "2030-01-01"'),
    "no number": (SLURM + "directives: {a: 0b_}", 'YAML takes 0b_ for a number and can\'t read it: quote it, "0b_"'),
    "long number": (
        SLURM + "numa_nodes: " + "9" * 5000,
        "c.yaml:3: numa_nodes: is too long for a number (5000 characters)",
    ),
    "key": (POD + "env: {on: x}", 'c.yaml:4: env.on: is a key that YAML takes for true or false: quote it, "on"'),
    "number for a key": (POD + "env: {1: x}", 'c.yaml:4: env.1: is a key that YAML takes for a number: quote it, "1"'),
    "list for a key": (POD + "? [a]\n: x", "c.yaml:4: has a list for a key: write a word"),
    "tag": (POD + "env: !!python/name:os.system {}", "c.yaml:4: env: has the tag !!python/name:os.system: take it out"),
}


@each(("text", "message"), MESSAGES.values())
def test_a_cluster_file_is_refused_with_line_and_cure(text: Any, message: Any) -> None:
    (line,) = cluster_errors(text)
    assert message in line


def test_all_problems_are_reported_at_once_in_the_order_of_lines() -> None:
    text = "kind: slurm\nnodes: {count: four, cpus: 64}\nlimts: {}\ntime_limit: 24:00:00\nrunsdir: x\nenv: {UID: 1}\n"
    assert [line.split(": ")[:2] for line in cluster_errors(text)] == [
        ["c.yaml:2", "nodes.count"],
        ["c.yaml:3", "limts"],
        ["c.yaml:4", "time_limit"],
        ["c.yaml:5", "runsdir"],
        ["c.yaml:6", "env.UID"],
    ]


def test_a_misspelt_key_is_not_also_called_missing() -> None:
    assert cluster_errors("kind: ipu-pod\nhosts: a\nipu: 4") == ["c.yaml:3: ipu: is not a key: is ipus meant?"]


def test_a_key_of_another_kind_is_told_as_one_with_what_works_in_its_place() -> None:
    (told,) = cluster_errors("kind: local\nnodes: {count: 1, accelerator: gpu, accelerators: 4}")
    assert told == (
        "c.yaml:2: nodes: is a key of kind slurm or hosts, and this file is of kind local: "
        "write accelerator: gpu and accelerators: 4 in its place, or write kind: slurm"
    )
    assert cluster_from_text("kind: local\naccelerator: gpu\naccelerators: 4", "c.yaml").accelerators_per_host == 4
    (other,) = cluster_errors("kind: hosts\nhosts: a\npreemption: requeue")
    assert other.endswith("is a key of kind slurm, and this file is of kind hosts: take it out, or write kind: slurm")


def test_a_command_that_is_text_is_shown_as_the_list_that_works() -> None:
    with pytest.raises(JobError, match=r"expected a list: write it as") as refused:
        job_from_text("command: python train.py --name 'a b' --lr 3", "j.yaml")
    works = str(refused.value).partition("write it as ")[2]
    assert job_from_text(f"command: {works}", "j.yaml").command == ["python", "train.py", "--name", "a b", "--lr", "3"]


JOB_MESSAGES = {
    "number": ('instances: "4"', 'j.yaml:1: instances: read "4", expected a whole number: take the quotes away, 4'),
    "fraction": ("instances: 2.0", "j.yaml:1: instances: read 2.0, expected a whole number"),
    "misspelt": ("a: &a 1\nlearning_rte: 1", "j.yaml:2: learning_rte: is not a key: is learning_rate meant?"),
    "dashes": ("micro-batch: 4", "j.yaml:1: micro-batch: is not a key: is micro_batch meant?"),
    "precision": ("precision: 32.32", "'bf16': quote it, \"32.32\""),
    "batch": (
        "accumulation: 2\nglobal_batch: 8",
        "j.yaml:2: global_batch: excludes accumulation, and both are given: give one of them",
    ),
    "memory": (
        "task: digits-cnn\ndirectives: {mem: 7G, mem-per-cpu: 2G}",
        "j.yaml:2: directives: asks for memory twice: mem is 7G and mem-per-cpu is 2G, and sbatch takes one of them: "
        "take one out",
    ),
    "task": ("command: [ls]\ntask: x", "j.yaml:1: command: excludes task, and both are given: give one of them"),
    "epochs": ("updates: 1\nepochs: 1", "j.yaml:1: updates: excludes epochs, and both are given: give one of them"),
    "command": ("command: ls -l", 'j.yaml:1: command: read "ls -l", expected a list'),
    "no command": ("command: []", "j.yaml:1: command: read a list, expected at least 1 item"),
    "name": ("name: a/b", 'j.yaml:1: name: read "a/b", expected one line of at most 200 characters without a slash'),
    "infinite": ("learning_rate: .inf", "j.yaml:1: learning_rate: read .inf, expected a finite number"),
    "zero": ("learning_rate: 0", "j.yaml:1: learning_rate: read 0, expected more than 0"),
    "one": ("momentum: 1.0", "j.yaml:1: momentum: read 1.0, expected less than 1.0"),
    "switch": ("eight_bit_io: 1", "j.yaml:1: eight_bit_io: read 1, expected true or false"),
    "option": ("set: {a-b: 1}", 'j.yaml:1: set.a-b: read "a-b", expected a name of letters, digits and underscores'),
}


@each(("text", "message"), JOB_MESSAGES.values())
def test_a_job_file_is_refused_with_line_and_cure(text: Any, message: Any) -> None:
    assert [line for line in job_errors(text) if message in line], job_errors(text)


def test_long_values_are_shown_cut() -> None:
    (line,) = job_errors(f"instances: {'x' * 500}")
    assert len(line) < 140
    assert "…" in line


def test_what_becomes_text_stays_as_it_is_written() -> None:
    job = job_from_text(
        "command: [python, a.py, 0.10, 1e5, 010, 24:00:00]\nenv: {A: 3.10, B: 2030-01-01, C: 1_000}", "j"
    )
    assert job.command == ["python", "a.py", "0.10", "1e5", "010", "24:00:00"]
    assert job.env == {"A": "3.10", "B": "2030-01-01", "C": "1_000"}


def test_an_exponent_needs_no_dot() -> None:
    assert job_from_text("learning_rate: 1e-3", "j").learning_rate == 0.001


def test_anchors_and_merged_keys_are_read() -> None:
    merged = "kind: slurm\nenv: &shared {A: x, B: y}\nnodes: {<<: &n {count: 2, cpus: 4}, count: 3}"
    cluster = SlurmCluster.of(cluster_from_text(merged, "c"))
    assert cluster.node.as_values(stated_only=True) == {"count": 3, "cpus": 4}


def test_a_key_over_a_merged_one_is_reported_at_its_own_line() -> None:
    text = "kind: slurm\nnodes:\n  cpus: 2\n  <<: &n\n    count: 2\n  count: four\n"
    assert cluster_errors(text) == ['c.yaml:6: nodes.count: read "four", expected a whole number']


def test_a_recursive_anchor_is_refused() -> None:
    assert cluster_errors(POD + "env: &a {A: *a}") == ["c.yaml:4: env.A: read keys with values, expected text"]


def test_a_file_is_called_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("kind: lokal")
    with pytest.raises(ClusterError, match=r"^clusters/c\.yaml:1: kind: read 'lokal'"):
        read_cluster(path, "clusters/c.yaml")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"no\.yaml: there is no such file: correct the path"):
        read_job(tmp_path / "no.yaml")
    with pytest.raises(ClusterError, match="can't be read: it is not a regular file"):
        read_cluster(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(JobError, match=r"latin\.yaml: byte 7 is not UTF-8: save the file as UTF-8 text"):
        read_job(tmp_path / "latin.yaml")


TEXTS = "kind local slurm env nodes hosts set command directives ipus n[1-2] 010 0.5 1e3 4:00 no << 2030-13-45 !!int"
WORDS = st.sampled_from([*re.findall(r"\S+", TEXTS), *"a1.~=*&!{}[]:,-?|>'\"#@\\\té\x00\ud800"])


@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", ": ", "\n", "\n  "])), max_size=25))
def test_any_text_is_read_or_refused_with_a_place(pieces: Any) -> None:
    text = "".join(word + space for word, space in pieces)
    for read, error in ((cluster_from_text, ClusterError), (job_from_text, JobError)):
        for start in ("", "kind: slurm\n"):
            assert all(line.startswith("x.yaml:") for line in _refusal(read, error, start + text))


def _refusal(read: Any, error: Any, text: Any) -> Any:
    try:
        read(text, "x.yaml")
    except error as refused:
        return str(refused).split("\n")
    return []


@pytest.mark.parametrize("what", ["a pipe", "zeros without end", "more than 256 kB"])
def test_what_is_no_cluster_file_is_refused_at_once(tmp_path: Path, what: str) -> None:
    path = tmp_path / "c.yaml"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "zeros without end":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("kind: local\n" + "".join(f"key{number}: 1\n" for number in range(100_000)))
    with pytest.raises(ClusterError, match=r"can't be read: it is (not a regular file|larger than 262144 bytes)"):
        read_cluster(path)
