"""The comparison of a batch file's ranks with those of the job that it was adopted as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from batchfiles.adoption.adopt import adopt
from batchfiles.adoption.explanations import explained
from batchfiles.rehearsal import proof as proofs
from batchfiles.rehearsal.observations import RankObservation, made_of, observe_ranks, requested, with_cpus_of_a_node
from batchfiles.rehearsal.proof import InterruptedEnd, Proof, ProofDifference
from batchfiles.rehearsal.proving import program_from_outside, taken_by_sbatch
from batchfiles.rehearsal.recording import EndedJob, RecordedProcess, Recording, SlurmStep
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.support.cases import each

FIRST = RankObservation(0, 2, 0, 0, "the project's", 4, 16, "8", "python train.py", (("A", "1"),))


def differences(proof: Proof) -> list[str]:
    return [one.text for one in proof.differences()]


def test_equal_ranks_prove_the_job() -> None:
    ranks = [FIRST, FIRST._replace(rank=1)]
    proof = Proof(ranks, list(ranks))
    assert (proof.is_equal, differences(proof)) == (True, [])


def test_each_difference_is_told() -> None:
    other = FIRST._replace(world_size=4, environment=())
    proof = Proof([FIRST], [other])
    assert not proof.is_equal
    assert differences(proof) == [
        "world size of rank 0: 2, and 4 in the job",
        "environment of rank 0: A=1, and nothing in the job",
    ]
    more = Proof([FIRST], [FIRST, FIRST._replace(rank=1, node=1)])
    assert differences(more) == [
        "the file starts 1 rank on 1 node, each of a world of 2; and the job 2 ranks on 2 nodes, each of a world of 2"
    ]


def test_only_what_differs_is_told() -> None:
    theirs = FIRST._replace(environment=(("A", "1"), ("B", "2")))
    ours = FIRST._replace(environment=(("A", "1"), ("B", "3")))
    assert differences(Proof([theirs], [ours])) == ["environment of rank 0: B=2, and B=3 in the job"]


def test_ends_after_an_interruption_are_compared() -> None:
    back = InterruptedEnd("COMPLETED", 2, None, {"last.pt": "", "result.json": ""})
    assert Proof([FIRST], [FIRST], ends=(back, back)).is_equal
    killed = InterruptedEnd("TIMEOUT", 1, None, {"last.pt": ""})
    proof = Proof([FIRST], [FIRST], ends=(killed, back))
    assert differences(proof) == [
        "interrupted by its time limit, the file is TIMEOUT after 1 start, and the job is COMPLETED after 2 starts",
        "at the end, only the job writes result.json",
    ]
    assert proof.unexplained(explained(["time-limit-unhandled"], [])) == []
    assert len(proof.unexplained(explained(["nnodes-missing"], []))) == 2
    stopped = back._replace(state="FAILED", starts=1, why="nothing was written after the request")
    assert differences(Proof([FIRST], [FIRST], ends=(back, stopped))) == [
        "interrupted by its time limit, the file is COMPLETED after 2 starts, and the job is FAILED after 1 start "
        "(nothing was written after the request)"
    ]


def test_what_ends_before_its_time_limit_proves_nothing_about_an_interruption() -> None:
    done = InterruptedEnd("COMPLETED", 1, None, {})
    proof = Proof([FIRST], [FIRST], ends=(done, done))
    assert differences(proof) == ["neither was interrupted: both end before their time limit"]
    assert proof.unexplained(explained(["time-limit-unhandled"], []))


def test_a_difference_is_excused_by_what_explains_it_alone() -> None:
    one, other = FIRST, FIRST._replace(world_size=4, command="python other.py")
    proof = Proof([one], [other])
    assert [each.aspect for each in proof.unexplained(explained(["nnodes-missing"], []))] == ["command"]
    assert len(proof.unexplained(explained(["nnodes-missing", "rank-expanded-early"], []))) == 1
    assert len(proof.unexplained(explained(["signal-kills-batch"], []))) == 2
    none = Proof((), [other], ProofDifference("start", "the file started no rank: usage"))
    assert none.unexplained(explained(["nnodes-missing", "signal-kills-batch"], ["line 3: srun starts 2 launchers"]))
    refused = Proof([one], [one], refusal="sbatch refuses it")
    assert not refused.unexplained(explained([], ["line 2: sbatch expands no $1; the job takes 2"]))
    assert refused.unexplained(explained(["nnodes-missing"], []))


def test_a_call_that_sh_does_not_know_is_excused_and_no_other() -> None:
    proof = Proof([FIRST], [FIRST], setup=(["module load x"], ["module load x", "source activate y"]))
    assert not proof.unexplained(explained(["bash-under-sh"], []))
    assert proof.unexplained(explained(["port-fixed"], []))
    assert replace(proof, setup=(["a"], ["source activate y"])).unexplained(explained(["bash-under-sh"], []))
    assert replace(proof, setup=(["a", "b"], ["b", "a"])).unexplained(explained(["bash-under-sh"], []))


@each(
    ("code", "theirs", "ours", "other"),
    [
        ("port-fixed", "--port 29500", "--port 31007", "--steps 29500"),
        ("port-fixed", "tcp://the first node:29500", "tcp://the first node:31007", "tcp://node2:29500"),
        ("addr-localhost", "tcp://localhost:29500", "tcp://the first node:29500", "tcp://the first node:31007"),
        ("addr-hostname-ip", "--master_addr=node1", "--master_addr=the first node", "--model=node1"),
        ("addr-from-compressed-list", "node[1-2]", "the first node", "train"),
        ("addr-localhost", "5", "5", "6"),
        ("port-fixed", "5", "5", "6"),
        ("rank-expanded-early", "--rank 0", "--rank 1", "--seed 1"),
        ("rank-expanded-early", "--batch-size 1", "--batch-size 1", "--batch-size 2"),
        ("script-dir-is-spool", "/x/spool-node1/job00001/a.yaml", "./a.yaml", "b.yaml"),
        ("sets-visible-devices", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=0", "A=2"),
    ],
)
def test_a_fault_excuses_only_the_words_that_it_changes(code: str, theirs: str, ours: str, other: str) -> None:
    def rank(text: str, more: str = "") -> RankObservation:
        if code == "sets-visible-devices":
            variables = [tuple(one.split("=")) for one in (text, more) if one]
            return FIRST._replace(environment=tuple((name, value) for name, value in variables))
        return FIRST._replace(command=f"python train.py {text} {more}".strip())

    excuses = explained([code], [])
    assert not Proof([rank(theirs)], [rank(ours)]).unexplained(excuses)
    assert Proof([rank(theirs)], [rank(other)]).unexplained(excuses)
    assert Proof([rank(theirs, "N=5")], [rank(ours, "N=6")]).unexplained(excuses)
    assert Proof([rank(theirs)], [rank(ours, "N=6")]).unexplained(excuses)


def left(theirs: Recording, ours: Recording, *codes: str, changed: Sequence[str] = ()) -> int:
    """Return the number of differences that these codes, and what adopt has changed, leave unexplained."""
    script = script_of(Path("/p/x.sbatch"), b"#!/bin/bash\nsrun torchrun --nnodes=2 train.py\n", SiteFacts())
    found = proofs.compared(script, theirs, ours, None, ({}, {}), ("/p", "/p"), ())
    return len(found.unexplained(explained(codes, changed)))


def test_bash_under_sh_explains_what_dash_says_of_it_alone() -> None:
    job = rank_in("/p", "python train.py", 2)
    for said, count in (("slurm_script: 20: Syntax error: word unexpected", 0), ("usage: x.sh CONFIG", 1)):
        without = replace(job, processes=(), jobs=[replace(job.jobs[0], output=f"begun\n/spool/{said}\n")])
        assert left(without, job, "bash-under-sh") == count
        assert left(job, without, "bash-under-sh") == 1


def test_a_refusal_by_sbatch_is_explained_only_if_it_refuses_the_file() -> None:
    job = rank_in("/p", "python train.py", 2)
    refused = replace(job, jobs=(), processes=(), refused="no node count")
    changed = ["line 4: --nodes= is no number to sbatch; the job takes 1 node"]
    assert left(refused, job, changed=changed) == 0
    assert left(refused, job) == 1
    assert left(job, refused, changed=changed) == 1


def test_launchers_that_wait_are_explained_by_a_fault_of_their_meeting_alone() -> None:
    launcher = rank_in("/p", "torchrun --nnodes=2 train.py", 2)
    job = rank_in("/p", "python train.py", 2)
    waiting = replace(launcher, stopped="its processes have done nothing for 50 s")
    for codes, count in ((("rank-expanded-early",), 0), (("tasks-times-torchrun",), 0), (("port-fixed", "no-srun"), 1)):
        assert left(waiting, job, *codes) == count
    assert left(launcher, job, "rank-expanded-early") == 1  # it has ended by itself
    assert left(job, waiting, "rank-expanded-early") == 1


def test_ranks_that_are_missing_excuse_no_other_program() -> None:
    more = [FIRST, FIRST._replace(rank=1, command="python other.py")]
    found = Proof([FIRST], more).unexplained(explained(["gpus-unused"], []))
    assert [one.text for one in found] == ["command of rank 1: python train.py, and python other.py in the job"]


def test_files_that_one_of_them_writes_are_told() -> None:
    proof = Proof([FIRST], [FIRST], files=({"a.json": "", "b": ""}, {"b": ""}))
    assert (proof.is_equal, differences(proof)) == (False, ["only the file writes a.json"])


def test_ranks_that_a_program_starts_itself_count() -> None:
    first = rank_in("/p", "python train.py", 2)
    forked = replace(rank_in("/p", "python -c spawn --multiprocessing-fork", 2).processes[0], pid=2, parent=1)
    both = replace(first, processes=[*first.processes, forked])
    assert [one.pid for one in both.ranks("7", program=["train.py"])] == [1, 2]


def test_a_side_that_starts_nothing_proves_nothing() -> None:
    proof = Proof((), (), ProofDifference("start", "the job started no rank: it printed nothing"))
    assert (proof.is_equal, differences(proof)) == (False, ["the job started no rank: it printed nothing"])
    assert not Proof((), ()).is_equal
    alone = Proof((), [FIRST], ProofDifference("start", "train.sbatch started no rank: no such file"))
    assert differences(alone)[0].endswith("no such file; the job starts 1 rank on 1 node, each of a world of 2")


def test_a_launcher_that_failed_is_explained_by_its_empty_option_alone(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:2\nsrun torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE train.py\n"
    path = tmp_path / "train.sbatch"
    path.write_text(text)
    adoption = adopt(path, tmp_path)
    assert "unset-variable" in adoption.cured
    failed, started = (rank_in("/p", words, 2) for words in ("torchrun --nproc_per_node= train.py", "python train.py"))
    script = script_of(path, text.encode(), SiteFacts())
    proof = proofs.compared(script, failed, started, None, ({}, {}), ("/p", "/p"), ())
    assert [one.aspect for one in proof.differences()] == ["failure of launchers"]
    assert proof.unexplained(adoption.explained) == []
    assert proof.unexplained(explained(["nnodes-missing", "rank-expanded-early"], []))
    given = path.with_name("given.sbatch")
    given.write_text(text.replace("--gres=gpu:2", "--gpus-per-node=2"))
    assert "unset-variable" not in adopt(given, tmp_path).cured


def test_a_copy_proves_no_file_that_sbatch_refuses() -> None:
    proof = Proof([FIRST], [FIRST], refusal="sbatch refuses train.sbatch: no #!")
    assert (proof.is_equal, differences(proof)) == (False, ["sbatch refuses train.sbatch: no #!"])


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("# by me\n\n#!/bin/bash\nsrun python train.py\n", "#!/bin/bash\nsrun python train.py\n"),
        ("#!/bin/bash\r\nsrun python train.py\r\n", "#!/bin/bash\nsrun python train.py\n"),
        ("#!/bin/sh\n#SBATCH -N $1 --gres=gpu:${2}\nx $1\n", "#!/bin/sh\n#SBATCH -N 3 --gres=gpu:4\nx $1\n"),
        ("#!/bin/bash\n#SBATCH -N $3\n", None),
    ],
)
def test_what_sbatch_refuses_is_taken_out_of_a_copy(tmp_path: Path, text: str, taken: str | None) -> None:
    script = script_of(tmp_path / "train.sbatch", text.encode(), SiteFacts(), ("3", "4"))
    copy = taken_by_sbatch(script, tmp_path / "copy")
    assert (copy and copy.path.read_text()) == taken


def test_an_option_that_sbatch_refuses_is_taken_out_of_a_copy(tmp_path: Path) -> None:
    script = script_of(tmp_path / "a", b"#!/bin/sh\n#SBATCH --time =\n#SBATCH -N 1\nx\n", SiteFacts(), ())
    copy = taken_by_sbatch(script, tmp_path / "copy", "Invalid --time specification")
    assert copy is not None
    assert copy.path.read_text() == "#!/bin/sh\n#\n#SBATCH -N 1\nx\n"


def test_the_program_may_be_a_variable_of_the_shell_that_submits() -> None:
    for text, name in (("$PROGRAM --lr 1", "PROGRAM"), ("${PROGRAM}", "PROGRAM"), ("train.py $ARGS", None)):
        script = script_of(Path("x"), f"#!/bin/bash\nsrun accelerate launch {text}\n".encode(), SiteFacts(), ())
        assert program_from_outside(script) == name


def test_the_spool_folder_is_not_the_projects() -> None:
    spool, own = (
        observe_ranks(rank_in(folder, "python train.py", 2), frozenset())[0] for folder in ("/p/spool-node1/x", "/p")
    )
    assert differences(Proof([spool], [own])) == [
        "folder of rank 0: Slurm's spool folder, and the project's in the job"
    ]


def test_what_tells_a_rank_its_place_is_not_requested() -> None:
    text = "export A=1 MASTER_PORT=2 RANK=0 CMD='python -u train.py'\nB=3\nC=4 srun python train.py\n"
    text += "srun bash -c 'export LOCAL_RANK=1 D=5; python train.py'\n"
    assert requested(script_of(Path("x"), text.encode(), SiteFacts())) == {"A", "C"}


def test_a_variable_that_is_the_training_itself_is_compared_as_its_command() -> None:
    text = "export A='--lr 1' RUN='torchrun train.py'\nsrun bash -c \"$RUN\"\n"
    assert made_of(script_of(Path("x"), text.encode(), SiteFacts())) == {"RUN"}


def rank_in(folder: str, words: str, cpus: int, **environment: str) -> Recording:
    """Return the record of one rank of a step with these CPUs."""
    fields = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", **environment}
    process = RecordedProcess(
        "node1", 1, 0, 0.0, tuple(words.split()), folder, fields, 2, None, None, None, None, None, (), (), (),
        None, None, None, has_ended=True, cpu_s=0.0,
    )  # fmt: skip
    job = EndedJob("7", "COMPLETED", 0, 0, ("node1",), 0, "", "", "")
    return Recording([job], [SlurmStep("7.0", "python", ("node1",), 2, cpus)], [process], (), 0)


def test_what_each_run_draws_anew_has_to_be_there_and_may_be_another(tmp_path: Path) -> None:
    script = script_of(
        tmp_path / "a", b"#!/bin/sh\nexport ID=$RANDOM RUN=$(date +%s) FIX=1\nsrun python train.py\n", SiteFacts()
    )
    one, other, without = (
        rank_in("/p", "python train.py", 2, RUN="9", FIX="1", **given) for given in ({"ID": "1"}, {"ID": "2"}, {})
    )
    for ours, differ in ((other, []), (without, ["environment"])):
        proof = proofs.compared(script, one, ours, None, ({}, {}), ("/p", "/p"), ())
        assert [difference.aspect for difference in proof.differences()] == differ


def test_the_folder_that_a_rank_starts_in_makes_no_difference() -> None:
    names = frozenset({"PYTHONPATH", "OUT"})
    theirs, ours = (
        observe_ranks(
            rank_in(folder, f"python {folder}/train.py", 4, PYTHONPATH=f"{folder}/src:/lib", OUT=folder), names
        )
        for folder in ("/home/me/project", "/runs/1/code/project")
    )
    assert (
        observe_ranks(rank_in("/p", "python train.py run-2026-11-23_23-27-40", 4), names)[0].command
        == "python train.py run-…"
    )
    assert theirs == ours
    assert (theirs[0].command, theirs[0].environment[1]) == ("python train.py", ("PYTHONPATH", "./src:/lib"))


def test_the_first_node_is_the_same_by_name_and_by_address() -> None:
    commands = [
        observe_ranks(rank_in("/p", f"python train.py tcp://{host}:3456", 2), frozenset())[0].command
        for host in ("node1", "10.213.0.1", "node2", "node10")
    ]
    assert commands[0] == commands[1] == "python train.py tcp://the first node:3456"
    assert commands[2:] == ["python train.py tcp://node2:3456", "python train.py tcp://node10:3456"]


def test_cpus_count_where_the_file_asks_for_some() -> None:
    lost, given = rank_in("/p", "python train.py", 2), rank_in("/p", "python train.py", 16)
    assert observe_ranks(lost, frozenset())[0].cpus is None
    assert observe_ranks(given, frozenset(), 8)[0].cpus == 8
    assert observe_ranks(lost, frozenset(), 8)[0].cpus == 1
    assert observe_ranks(lost, frozenset(), 8, least=8)[0].cpus == 8


def test_what_the_batch_shell_starts_has_the_cpus_of_all_tasks() -> None:
    stated = {"SLURM_CPUS_PER_TASK": "8", "SLURM_CPUS_ON_NODE": "16"}
    seen = rank_in("/p", "python train.py", 2, **stated)
    batch = {name: value for name, value in seen.processes[0].environment.items() if name != "SLURM_STEP_ID"}
    outside = replace(seen, processes=[replace(seen.processes[0], environment=batch)], steps=[])
    assert [observe_ranks(one, frozenset(), 8)[0].cpus for one in (outside, replace(seen, steps=[]))] == [16, 8]


def test_what_prepares_the_training_is_no_rank() -> None:
    seen, other = (rank_in("/p", f"python {words}", 2) for words in ("train.py --lr 1", "data/prepare.py"))
    both = replace(seen, processes=[*other.processes, *seen.processes])
    assert [one.command for one in observe_ranks(both, frozenset(), program=["src/train.py"])] == [
        "python train.py --lr 1"
    ]
    assert len(observe_ranks(both, frozenset(), program=["train.sh"])) == 2
    reported = replace(other.processes[0], environment={"SLURM_JOB_ID": "7"}, torch="2.13.0")
    quiet = replace(seen.processes[0], environment={"SLURM_JOB_ID": "7"})
    both = replace(seen, processes=[reported, quiet])
    assert [one.command for one in observe_ranks(both, frozenset(), program=["train.py"])] == ["python train.py --lr 1"]


def test_of_trainings_one_after_another_the_adopted_one_counts() -> None:
    first, last = (rank_in("/p", f"python fit.py --data {name}", 1) for name in ("a", "b"))
    both = replace(first, processes=[*first.processes, *last.processes])
    seen = observe_ranks(both, frozenset(), program=("fit.py", "--data", "b"))
    assert [one.command for one in seen] == ["python fit.py --data b"]
    assert len(observe_ranks(both, frozenset(), program=("fit.py", "--data", "c"))) == 2


def test_threads_are_those_of_a_node() -> None:
    theirs, ours = (FIRST._replace(threads=count, environment=(("OMP_NUM_THREADS", count),)) for count in ("8", "2"))
    assert with_cpus_of_a_node(ours, theirs, here=2) == theirs
    assert with_cpus_of_a_node(ours, theirs, here=4) == ours
    assert with_cpus_of_a_node(ours, None, here=2) == ours
    few, enough = FIRST._replace(cpus=2), FIRST._replace(cpus=4)
    assert with_cpus_of_a_node(enough, few, here=2, ranks=4).cpus == 2
    assert with_cpus_of_a_node(enough, few, here=2, ranks=2).cpus == 4


def test_a_rank_without_a_list_of_gpus_sees_all_of_its_node() -> None:
    free = replace(rank_in("/p", "python train.py", 4), gpus_per_node=4)
    listed = replace(rank_in("/p", "python train.py", 4, CUDA_VISIBLE_DEVICES="2,3"), gpus_per_node=4)
    assert [observe_ranks(one, frozenset())[0].gpus for one in (free, listed)] == [4, 2]


def test_logs_are_no_files_that_a_file_writes(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH -o logs/out_%x_%j -e errors\nsrun python train.py > said.txt\n"
    for name in ("out_a_7", "errors", "said.txt", "slurm-7.out", "made.json", "out_of"):
        (tmp_path / name).write_text("")
    script = script_of(Path("x"), text.encode(), SiteFacts())
    assert set(proofs.files_written(tmp_path, proofs.logs_of(script))) == {"made.json", "out_of"}


def test_a_fixed_world_size_explains_no_number_of_ranks() -> None:
    one, other = ([FIRST._replace(rank=rank, world_size=size) for rank in range(size)] for size in (2, 4))
    assert Proof(one, other).unexplained(explained(["world-size-fixed"], []))
    assert not Proof([FIRST], [FIRST._replace(world_size=4)]).unexplained(explained(["world-size-fixed"], []))


def test_a_launcher_of_two_nodes_that_only_one_starts_waits_as_the_file_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "train.sbatch"
    for told, aspects in ((" --nnodes=2", True), ("", False)):
        path.write_text(
            f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:2\ntorchrun --nproc-per-node=2{told} train.py\n"
        )
        assert ("meeting of launchers" in adopt(path, tmp_path).explained) == aspects
