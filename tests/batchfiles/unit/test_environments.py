"""The comparison of all that ranks find in their environment, and of their limits, folders and files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from batchfiles.rehearsal import proof as proofs
from batchfiles.rehearsal.environments import below, comparable, decided, differing
from batchfiles.rehearsal.observations import observe_ranks, without_what_was_given
from batchfiles.rehearsal.proof import Proof, in_pairs
from batchfiles.rehearsal.recording import Call
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.batchfiles.unit.test_proof import FIRST, differences, rank_in

GIVEN = {"PATH": "/seen/programs:/usr/bin:/bin", "LANG": "C", "CONDA_PREFIX": "/env"}


def environments(theirs: dict[str, str], ours: dict[str, str], names: tuple[str, ...] = ()) -> tuple[object, object]:
    given = {name: comparable(name, value, GIVEN, ["/p"]) for name, value in GIVEN.items()}
    one, other = (decided(of, GIVEN, names, ["/p"]) for of in (theirs, ours))
    return differing(one, other, given)


def test_numbers_and_folders_of_a_rehearsal_alone_are_no_difference() -> None:
    assert below("cd /tmp/trainjob-slurm-ab12/disk/x", ()) == "cd the disk/x"
    assert below("/tmp/trainjob-slurm-ab12/programs/conda", ()) == "the programs/conda"  # what $(which conda) says
    assert below("spawn_main(tracker_fd=4, pipe_handle=8)", ()) == "spawn_main(tracker_fd=…, pipe_handle=…)"


def test_a_lost_export_is_told_also_of_a_variable_that_no_reading_found() -> None:
    assert environments({**GIVEN, "A": "1"}, {"PATH": GIVEN["PATH"]}) == ({"A": "1"}, {})
    assert environments(GIVEN, {"PATH": GIVEN["PATH"], "DEBUG": "1"}) == ({}, {"DEBUG": "1"})


def test_a_job_may_lack_what_only_the_rehearsal_gave() -> None:
    assert environments(GIVEN, {"PATH": GIVEN["PATH"]}) == ({}, {})
    assert environments({**GIVEN, "LANG": "de"}, {"PATH": GIVEN["PATH"]}) == ({"LANG": "de"}, {})


def test_a_variable_that_stays_set_is_told() -> None:
    assert environments({"PATH": GIVEN["PATH"]}, GIVEN) == ({}, {"LANG": "C", "CONDA_PREFIX": "/env"})


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/opt/a:/seen/programs:/usr/bin:/bin", "/opt/a:…"),
        ("/seen/programs:/usr/bin:/bin:/opt/a", "…:/opt/a"),
        ("/p/bin:/usr/bin", "./bin:…"),
        ("/opt/a", "/opt/a"),
        ("/tmp/trainjob-adopted-x/run/code:/tmp/trainjob-adopted-x/run/code/project/src:/p/x", "./src:./x"),
    ],
)
def test_a_path_is_compared_by_what_was_added(path: str, seen: str) -> None:
    assert comparable("PATH", path, GIVEN, ["/p", "/tmp/trainjob-adopted-x/run/code/project"]) == seen


def test_what_a_job_adds_makes_no_difference_unless_the_file_sets_it() -> None:
    ours = {"WANDB_RUN_ID": "run", "PYTHONUNBUFFERED": "1", "TRAINJOB_TOKEN": "x", "RANK": "0", "SLURM_JOB_ID": "7"}
    assert environments({}, ours) == ({}, {})
    assert environments({"WANDB_RUN_ID": "mine"}, ours) == ({"WANDB_RUN_ID": "mine"}, {"WANDB_RUN_ID": "run"})
    assert environments({"SLURM_CPU_BIND": "none"}, {}, ("SLURM_CPU_BIND",)) == ({"SLURM_CPU_BIND": "none"}, {})
    assert environments({"NCCL_SOCKET_IFNAME": "ib0"}, {"NCCL_SOCKET_IFNAME": "eth0"})[0] == {
        "NCCL_SOCKET_IFNAME": "ib0"
    }


def test_only_a_value_that_a_login_shell_sets_here_makes_no_difference() -> None:
    login = {("MAIL", "/var/mail/me"), ("SITE", "a")}
    for name, value, is_left in (
        ("MAIL", "/var/mail/me", False),
        ("MAIL", "/tmp", True),
        ("XDG_DATA_HOME", "/x", True),
    ):
        assert any(differing({name: value}, {}, {}, login)) == is_left
        assert any(differing({}, {name: value}, {}, login)) == is_left
    assert differing({"SITE": "b"}, {"SITE": "a"}, {}, login) == ({"SITE": "b"}, {"SITE": "a"})
    ranks = [FIRST._replace(environment=environment) for environment in ((("MAIL", "/var/mail/me"),), ())]
    assert without_what_was_given(ranks[0], ranks[1], {}, [], login)[0].environment == ()


def test_ranks_that_one_of_them_lacks_are_compared_with_the_last_one_there_is() -> None:
    ranks = [FIRST._replace(rank=at, environment=(("HOME", "/h"), ("A", str(at)))) for at in range(3)]
    assert [(one.rank, other.rank) for one, other in in_pairs(ranks[:2], ranks)] == [(0, 0), (1, 1), (1, 2)]
    assert [(one.rank, other.rank) for one, other in in_pairs(ranks, ranks[:1])] == [(0, 0), (1, 0), (2, 0)]
    assert in_pairs([], ranks) == []
    found = differences(Proof(ranks[:2], ranks))
    assert found[1:] == ["environment of rank 2: A=1, and A=2 in the job"]


def test_what_was_given_is_taken_from_every_pair_of_ranks() -> None:
    """Four ranks in the job of a file that starts two: the last one of the file counts three times."""
    theirs, ours = (
        replace(
            recording,
            processes=[
                replace(recording.processes[0], pid=at, environment={**environment, "RANK": str(at)})
                for at in range(count)
            ],
            given={"HOME": "/h"},
        )
        for count, recording in ((2, rank_in("/p", "python train.py", 2)), (4, rank_in("/p", "python train.py", 2)))
        for environment in ({**recording.processes[0].environment, "HOME": "/h"},)
    )
    script = script_of(Path("/p/x.sbatch"), b"#!/bin/bash\nsrun python train.py\n", SiteFacts())
    found = proofs.compared(script, theirs, ours, None, ({}, {}), ("/p", "/p"), ())
    assert differences(found) == [
        "the file starts 2 ranks on 1 node, each of a world of 1; and the job 4 ranks on 1 node, each of a world of 1"
    ]


def test_a_project_has_the_folder_of_the_cluster_to_which_the_file_moves() -> None:
    ranks = [
        observe_ranks(rank_in(folder, "python train.py", 2), frozenset(), base="/p", elsewhere=["/site/code"])[0]
        for folder in ("/site/code", "/site/code/a", "/site/codes")
    ]
    assert [one.folder for one in ranks] == ["the project's", "the project's a", "/site/codes"]


def test_secrets_are_not_compared() -> None:
    assert environments({"HF_TOKEN": "hf_abcdefghijklmnopqrstuv", "URL": "https://u:pass1234@host/x"}, {})[1] == {}
    assert "HF_TOKEN" not in str(environments({"HF_TOKEN": "hf_abcdefghijklmnopqrstuv"}, {}))


def test_limits_and_the_umask_are_compared() -> None:
    ranks = [FIRST._replace(limits=(("nofile", count), ("umask", "022"))) for count in ("512", "1024")]
    pair = without_what_was_given(ranks[0], ranks[1], {}, [])
    assert differences(Proof([pair[0]], [pair[1]])) == ["limits of rank 0: nofile=512, and nofile=1024 in the job"]


def test_the_folder_of_a_rank_is_compared() -> None:
    inside, top = (
        observe_ranks(rank_in(one, "python train.py", 2), frozenset(), base="/p")[0] for one in ("/p/a", "/p")
    )
    assert differences(Proof([inside], [top])) == ["folder of rank 0: the project's a, and the project's in the job"]


def test_arguments_are_compared_as_words() -> None:
    ranks = [
        replace(rank_in("/p", "python x", 2).processes[0], words=words)
        for words in (("python", "a b"), ("python", "a", "b"))
    ]
    seen = [observe_ranks(replace(rank_in("/p", "", 2), processes=[one]), frozenset())[0] for one in ranks]
    assert differences(Proof([seen[0]], [seen[1]])) == ["command of rank 0: python 'a b', and python a b in the job"]


def test_another_text_in_a_file_is_told_if_it_was_written_before_the_training(tmp_path: Path) -> None:
    sides = []
    for at, text in enumerate(("job 12345 in /a/x", "job 12399 in /b/x", "job 12345 in /a/y")):
        (tmp_path / str(at)).mkdir()
        for name in ("c.yaml", "late.txt"):
            (tmp_path / str(at) / name).write_text(text)
        os.utime(tmp_path / str(at) / "c.yaml", (5, 5))
        sides.append(proofs.files_written(tmp_path / str(at), "log", 10.0, ["/a", "/b"]))
    assert not differences(Proof([FIRST], [FIRST], files=(sides[0], sides[1])))
    assert differences(Proof([FIRST], [FIRST], files=(sides[0], sides[2]))) == [
        "the job writes something else into c.yaml"
    ]


def test_programs_that_set_up_an_environment_are_compared_in_their_order() -> None:
    seen = rank_in("/p", "python train.py", 2)
    calls = [
        Call("node1", False, "/p", tuple(words.split()))
        for words in ("module load a", "module list", "uv run train.py", "pip install /p/x", "module load a")
    ]
    activated = [
        Call("node1", False, folder, ("source", path))
        for folder, path in (("/p/a", "venv/bin/activate"), ("/p", "/p/a/venv/bin/activate"), ("/p", "activate"))
    ]
    assert proofs.setup_calls(replace(seen, calls=activated), ["/p"]) == [
        "source ./a/venv/bin/activate",
        "source activate",
    ]
    assert proofs.setup_calls(replace(seen, calls=calls), ["/p"], ["train.py"]) == ["module load a", "pip install ./x"]
    runs = [Call("node1", False, "/p", ("uv", "run", "python", name)) for name in ("get.py", "src/train.py")]
    assert proofs.setup_calls(replace(seen, calls=runs), ["/p"], ["train.py"]) == ["uv run python get.py"]
    both = differences(Proof([FIRST], [FIRST], setup=(["module load a", "module load b"], ["module load a"])))
    assert both == ["the file calls module load b, and the job does not"]
    turned = differences(Proof([FIRST], [FIRST], setup=(["a", "b"], ["b", "a"])))
    assert turned == ["the file calls a; b, and the job b; a"]


def test_an_address_with_a_password_is_compared_and_printed_by_nobody() -> None:
    proxy = {"HTTPS_PROXY": "http://me:IDd1jJ7pW7MXd1od63GnWe@10.1.20.50:23128", "SITE": "http://10.1.20.50/x"}
    assert environments({**GIVEN, **proxy}, GIVEN) == ({"SITE": "http://10.1.20.50/x"}, {})


def test_what_the_batch_shell_sets_up_behind_the_training_is_no_part_of_it() -> None:
    seen = rank_in("/p", "python train.py", 1)
    seen = replace(seen, processes=[replace(seen.processes[0], began_at=5.0)])
    words = [("conda", "activate", "a"), ("conda", "deactivate")]
    calls = [
        Call("node1", in_step=False, folder="/p", words=one, at=at) for one, at in zip(words, (4.0, 6.0), strict=True)
    ]
    assert proofs.setup_calls(replace(seen, calls=calls), ["/p"]) == ["conda activate a"]


def test_the_folder_of_python_may_come_first_once_more() -> None:
    found = comparable("PATH", "/usr/bin:/mine/bin:/usr/bin:/bin", {"PATH": "/usr/bin:/bin"}, ())
    assert found == comparable("PATH", "/mine/bin:/usr/bin:/bin", {"PATH": "/usr/bin:/bin"}, ())
