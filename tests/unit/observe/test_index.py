"""Runs by id, prefix, `last` and path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.run_folders import made
from trainjob.contract.errors import UserError
from trainjob.contract.paths import home
from trainjob.observe import index


def refused(asked: str) -> str:
    with pytest.raises(UserError) as caught:
        index.find(asked)
    return str(caught.value)


def test_a_prefix_is_enough_while_it_is_unique(tmp_path: Path) -> None:
    made(tmp_path, "abcd-job")
    made(tmp_path, "abxy-job")
    assert index.find("abc").id == "abcd-job"
    assert index.find("abxy-job").id == "abxy-job"
    assert refused("ab") == "ab could be any of abxy-job, abcd-job: give more of the id"


def test_a_whole_id_wins_over_longer_ones(tmp_path: Path) -> None:
    made(tmp_path, "abcd-job")
    made(tmp_path, "abcd-job-2")
    assert index.find("abcd-job").id == "abcd-job"


def test_a_prefix_of_many_names_the_first_and_counts_the_rest(tmp_path: Path) -> None:
    for number in range(11):
        made(tmp_path, f"a{number:02d}-job")
    assert "and 3 more: give more of the id" in refused("a")


def test_an_unknown_run_is_refused_with_the_way_to_the_list(tmp_path: Path) -> None:
    made(tmp_path, "abcd-job")
    assert refused("zzzz") == "no run is called zzzz: `trainjob list` shows 1 run"


def test_no_name_at_all_means_no_run(tmp_path: Path) -> None:
    made(tmp_path, "abcd-job")
    assert "no run is named" in refused("")


def test_last_is_the_newest(tmp_path: Path) -> None:
    for run_id in ("zzzz-job", "aaaa-job", "mmmm-job"):
        made(tmp_path, run_id)
    assert index.find("last").id == "mmmm-job"


def test_without_runs_last_says_how_to_make_one() -> None:
    assert "trainjob submit --cluster local" in refused("last")


def test_a_path_needs_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, "abcd-job")
    index.forget("abcd-job")
    monkeypatch.chdir(tmp_path)
    assert index.find("./abcd-job").folder == paths.folder
    assert "is not a run directory: it has no job.json" in refused("./nowhere")


def test_a_run_whose_folder_is_gone_says_what_forgets_it(tmp_path: Path) -> None:
    paths = made(tmp_path, "abcd-job")
    shutil.rmtree(paths.folder)
    assert "is gone: `trainjob prune --yes` forgets it" in refused("abcd")
    assert list(index.every_run()) == []


@pytest.mark.parametrize(
    ("name", "ending"), [("digits-cnn", "digits-cnn"), ("my job/ü", "my-job"), ("...", "job"), ("x" * 99, "x" * 40)]
)
def test_an_id_is_short_and_a_plain_file_name(name: str, ending: str) -> None:
    made_id = index.new_id(name)
    assert made_id[5:] == ending
    assert made_id[4] == "-"


def test_only_runs_of_the_last_seconds_are_recent(tmp_path: Path) -> None:
    made(tmp_path, "abcd-job")
    made(tmp_path, "efgh-job")
    os.utime(home() / "index" / "abcd-job", (0, 0), follow_symlinks=False)
    assert [paths.id for paths in index.recent(60)] == ["efgh-job"]


def test_a_run_is_found_by_the_name_of_its_job(tmp_path: Path) -> None:
    made(tmp_path, "abcd-digits")
    made(tmp_path, "efgh-digits-2")
    assert index.find("digits").id == "abcd-digits"
    assert index.find("digits-2").id == "efgh-digits-2"


def test_a_name_that_several_runs_have_is_refused_with_the_newest_first(tmp_path: Path) -> None:
    for run_id in ("zzzz-digits", "aaaa-digits", "mmmm-digits"):
        made(tmp_path, run_id)
    assert refused("digits") == "digits could be any of mmmm-digits, aaaa-digits, zzzz-digits: give more of the id"


def test_a_name_of_characters_that_an_id_can_not_hold_is_found(tmp_path: Path) -> None:
    run_id = index.new_id("a job/of mine")
    made(tmp_path, run_id)
    assert index.find("a job of mine").id == run_id


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["symlink_to", "replace"])
def test_an_entry_that_can_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    real = getattr(Path, call)

    def fails(*arguments: Path) -> None:
        if call == "symlink_to":  # made, although an error comes back
            real(*arguments)
        raise error

    monkeypatch.setattr(Path, call, fails)
    with pytest.raises((UserError, KeyboardInterrupt)):
        made(tmp_path, "abcd-job")
    assert [entry.name for entry in (home() / "index").iterdir()] == []
