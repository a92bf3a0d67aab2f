"""What a machine refuses the command line itself: threads, memory, output; and what it must say all the same."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import pytest

import trainjob
from tests.support.run_folders import made
from trainjob.cli.failures import handled, printed_on_lost_output
from trainjob.cli.main import main
from trainjob.contract import exits
from trainjob.contract.paths import RunPaths


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("can't start new thread"), "out of processes, memory or open files (no further thread)"),
        (MemoryError(), "out of processes, memory or open files (no memory)"),
        (OSError(errno.EMFILE, "Too many open files"), "out of processes, memory or open files (Too many open files)"),
    ],
)
def test_a_limit_of_the_machine_is_no_bug(capsys: pytest.CaptureFixture[str], error: Exception, text: str) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise error
    assert ended.value.code == exits.USER_OR_CLUSTER_CAN_FIX
    assert text in capsys.readouterr().err


def test_exit_codes_of_programs_are_known_where_the_caller_ignores_its_children() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            main(["--version"])
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ELOOP])
def test_a_path_that_no_system_takes_is_no_bug(capsys: pytest.CaptureFixture[str], number: int) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise OSError(number, os.strerror(number), "/runs/" + "d/" * 3000)
    shown = capsys.readouterr().err
    assert ended.value.code == exits.USER_OR_CLUSTER_CAN_FIX
    assert f"… can't be used ({os.strerror(number)})" in shown
    assert len(shown) < 500


def test_a_file_server_that_has_gone_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise OSError(errno.ESTALE, "Stale file handle", "/shared/job.yaml")
    assert ended.value.code == exits.USER_OR_CLUSTER_CAN_FIX
    assert "/shared/job.yaml can't be reached (Stale file handle)" in capsys.readouterr().err


def test_a_python_without_what_trainjob_needs_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise ModuleNotFoundError("No module named 'platformdirs'", name="platformdirs")
    assert ended.value.code == exits.USER_OR_CLUSTER_CAN_FIX
    assert f"{sys.executable} has no platformdirs, which trainjob needs" in capsys.readouterr().err


def test_a_module_of_our_own_that_is_missing_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise ModuleNotFoundError("No module named 'trainjob.odd'", name="trainjob.odd")
    assert ended.value.code == exits.OUR_BUG
    assert "BUG: ModuleNotFoundError" in capsys.readouterr().err


def test_another_runtime_error_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, handled(["list"]):
        raise RuntimeError("odd")
    assert ended.value.code == exits.OUR_BUG
    assert "BUG: RuntimeError: odd" in capsys.readouterr().err


def test_a_run_that_was_started_is_named_although_the_output_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="No space"), printed_on_lost_output("submitted run abcd-x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert capsys.readouterr().err == "submitted run abcd-x\n"


@pytest.mark.parametrize("words", [("prune", "--older-than-days", "nan"), ("cancel", "x", "--grace-s", "inf")])
def test_a_number_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == exits.USAGE
    assert f"{words[-1]} is not a finite number" in capsys.readouterr().err


def test_a_reservation_that_would_be_idle_for_longer_than_numbers_reach_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reserve", "slurm-gpu", "--idle", "1e308"])
    assert ended.value.code == exits.USAGE


def test_nothing_to_prune_needs_no_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["prune"])
    assert capsys.readouterr().out == "no ended run is older than 30 days (--older-than-days)\n"
    made(tmp_path, "abcd-x")
    with pytest.raises(SystemExit):
        main(["prune"])
    assert capsys.readouterr().out.endswith("would be removed: add --yes\n")


@pytest.mark.parametrize("state", ["FAILED", "COMPLETED"])
def test_usage_of_a_run_that_has_ended_does_not_say_that_it_has_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    made(tmp_path, "abcd-x", state=state)
    with pytest.raises(SystemExit):
        main(["usage", "abcd"])
    output = capsys.readouterr().err
    assert "It ended before the first sample was taken, or its folder lacks logs/usage-*.jsonl" in output


def test_a_run_shows_what_it_is() -> None:
    assert repr(trainjob.Run(RunPaths("/runs/abcd-x"))) == "<trainjob.Run abcd-x: /runs/abcd-x>"


def test_the_command_line_is_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import runpy

    monkeypatch.setattr(sys, "argv", ["trainjob", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("trainjob", run_name="__main__")
    assert ended.value.code in (0, None)
    assert trainjob.__version__ in capsys.readouterr().out
