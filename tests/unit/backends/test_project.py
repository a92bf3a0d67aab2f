"""Which files of a plain folder a run takes along, and what git is asked and how; without a git."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.submit_cases import everything_below, write
from trainjob.backends import project as projects
from trainjob.backends.project import Project, Selection, copy, copy_file, find, other_author, select
from trainjob.contract.errors import UserError
from trainjob.machines import process
from trainjob.machines.process import CommandError, Completed


def plain(top: Path, secrets_file: str | None = None) -> Project:
    return Project(top, ".", in_git=False, secrets_file=secrets_file)


# --- A folder without git.


def test_everything_is_taken_but_folders_that_nobody_means_and_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    write(tmp_path, "share/trainjob/index/abcd", "runs/.abcd.7.part/code/trainjob/x.py", "runs/.abcd.removed/job.json")
    never = (".git", ".venv", "node_modules", "__pycache__", "a/.tox")
    write(tmp_path, "train.py", "a/b/c.py", "runs/abcd/job.json", "runs/abcd/code/trainjob/x.py", "half/job.json")
    write(tmp_path, *(f"{name}/x.py" for name in never))
    (tmp_path / "code/trainjob").mkdir(parents=True)
    write(tmp_path, "code/trainjob/y.py")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "file-link").symlink_to("train.py")
    found = select(plain(tmp_path))
    assert set(found.files) == {"train.py", "a/b/c.py", "half/job.json", "code/trainjob/y.py", "link", "file-link"}
    assert found.left_out == ()


def test_what_went_away_since_it_was_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.py", "b.py")
    reason = Project.reason_to_leave_out

    def goes_away(project: Project, name: str) -> str | None:
        (tmp_path / "a.py").unlink(missing_ok=True)
        return reason(project, name) if name == "b.py" else None

    monkeypatch.setattr(Project, "reason_to_leave_out", goes_away)
    assert select(plain(tmp_path)).files == ("b.py",)


def test_secrets_data_and_what_is_no_file_stay_behind(tmp_path: Path) -> None:
    write(tmp_path, ".env", "keys/mine.env", "small.bin", "train.py")
    for name, size in (("fits.bin", 10 << 20), ("large.bin", (10 << 20) + 1)):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(tmp_path / "socket"))
    found = select(plain(tmp_path, "keys/mine.env"))
    assert set(found.files) == {"train.py", "small.bin", "fits.bin"}
    assert dict(found.left_out) == {
        ".env": "may hold a secret",
        "keys/mine.env": "may hold a secret",
        "large.bin": "larger than 10 MB, so it counts as data",
    }


def test_at_most_500_mb_are_taken(tmp_path: Path) -> None:
    for number in range(50):
        with (tmp_path / f"{number}.bin").open("wb") as stream:
            stream.truncate(10 << 20)
    assert len(select(plain(tmp_path)).files) == 50
    (tmp_path / "one more").write_text("x")
    with pytest.raises(UserError, match="has 500 MB of files, and a run copies at most 500 MB"):
        select(plain(tmp_path))


def test_a_home_or_a_disk_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for top in (tmp_path, Path("/")):
        with pytest.raises(UserError, match=f"the project would be all of {top}: change into its folder"):
            select(plain(top))


def test_a_copy_has_the_same_files_and_only_its_owner_writes_it(tmp_path: Path) -> None:
    top, target = tmp_path / "top", tmp_path / "target"
    write(top, "a/train.py", "run.sh")
    (top / "run.sh").chmod(0o777)
    (top / "link").symlink_to("/nowhere")
    project = Project(top, "a/b", in_git=False)
    copy(project, Selection(("a/train.py", "run.sh", "link"), ()), target)
    assert everything_below(target) == {"a/train.py", "run.sh", "link"}
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "/nowhere"
    assert (target / "a/b").is_dir()


def test_a_file_that_went_away_is_named_and_a_target_that_is_no_folder_is_an_error_of_the_system(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a.py")
    with pytest.raises(UserError, match=r"project file .*gone\.py can't be read \(No such file or directory\)"):
        copy_file(tmp_path / "gone.py", tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        copy_file(tmp_path / "a.py", tmp_path / "missing/x")


def test_a_link_that_takes_a_file_s_place_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.py", "secret")

    def swap(path: Path) -> os.stat_result:
        status = path.stat(follow_symlinks=False)
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        return status

    monkeypatch.setattr(os, "lstat", swap)
    with pytest.raises(UserError, match=r"project file .*a\.py can't be read \(Too many levels of symbolic links\)"):
        copy_file(tmp_path / "a.py", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_project_is_the_folder_that_was_asked_for_or_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert find(tmp_path / "a") == Project(tmp_path / "a", ".", in_git=False)
    assert find(tmp_path / "a/b", tmp_path / "a") == Project(tmp_path / "a", "b", in_git=False)
    assert find(tmp_path, tmp_path / "a") == Project(tmp_path / "a", ".", in_git=False)
    assert find(tmp_path / "a", None, str(tmp_path / "a/my.env")).secrets_file == "my.env"
    assert find(tmp_path / "a", None, str(tmp_path / "my.env")).secrets_file is None
    with pytest.raises(UserError, match=r"--project .*file is not a folder"):
        find(tmp_path, tmp_path / "file")
    assert find(tmp_path / "a").record() == {"top": str(tmp_path / "a"), "commit": None, "diff": None}
    assert other_author(tmp_path / "file") is None


# --- What git is asked.


class Git:
    """Says what `says` has for the words after git's options; remembers words, folders and environment."""

    def __init__(self) -> None:
        self.says: dict[str, tuple[int, bytes]] = {}
        self.calls: list[tuple[str, ...]] = []
        self.options: list[tuple[str, ...]] = []
        self.environment: dict[str, str] = {}
        self.stderr = ""

    def run(
        self, words: Sequence[str], *, folder: Path, environment: Mapping[str, str], check: bool = True
    ) -> Completed:
        at = next(number for number, word in enumerate(words) if number and word in ASKED)
        self.options.append(tuple(words[:at]))
        self.calls.append(tuple(words[at:]))
        self.environment = dict(environment)
        said = " ".join(words[at:])
        code, output = next((answer for name, answer in self.says.items() if said.startswith(name)), (0, b""))
        if check and code:
            raise CommandError("failed")
        assert folder.is_dir()
        return Completed(tuple(words), code, output, self.stderr)


ASKED = ("rev-parse", "config", "diff", "ls-files", "log", "--literal-pathspecs")


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Git:
    (tmp_path / ".git").mkdir()
    found = Git()
    found.says = {
        "rev-parse --show-toplevel": (0, os.fsencode(tmp_path) + b"\n"),
        "rev-parse HEAD": (0, b"abc\n"),
        "config --local --includes": (1, b""),
        "config --worktree --includes": (1, b""),
    }
    monkeypatch.setattr(process, "run", found.run)
    for name in ("GIT_CONFIG_COUNT", "GIT_DIR", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    return found


def in_git(top: Path, secrets_file: str | None = None) -> Project:
    return Project(top, ".", in_git=True, secrets_file=secrets_file)


def test_git_runs_nothing_that_a_project_names_and_fetches_nothing(git: Git, tmp_path: Path) -> None:
    in_git(tmp_path).record()
    for options in git.options:
        pairs = [value for flag, value in itertools.pairwise(options) if flag == "-c"]
        assert pairs == [
            *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "diff.external=", "safe.bareRepository=explicit")
        ]
        assert options[:2] == ("git", "--no-pager")
    named = {name: git.environment[name] for name in ("GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL", "GIT_OPTIONAL_LOCKS")}
    assert named == {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_OPTIONAL_LOCKS": "0"}
    assert "GIT_CONFIG_COUNT" not in git.environment


@pytest.mark.parametrize(("before", "first"), [(None, 0), ("2", 2), ("x", 0)])
def test_filters_of_the_project_are_switched_off_behind_the_users_own_pairs(
    git: Git, tmp_path: Path, before: str | None, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is not None:
        monkeypatch.setenv("GIT_CONFIG_COUNT", before)
    git.says["config --local --includes"] = (0, b"filter.a=b.clean\0filter.x.process\0")
    git.says |= {"config --get": (0, b""), "diff": (0, b"the difference")}
    assert in_git(tmp_path).record() == {"top": str(tmp_path), "commit": "abc", "diff": "the difference"}
    pairs = [
        (git.environment[f"GIT_CONFIG_KEY_{first + at}"], git.environment[f"GIT_CONFIG_VALUE_{first + at}"])
        for at in range(3)
    ]
    assert pairs == [("trainjob.pairs", ""), ("filter.a=b.clean", ""), ("filter.x.process", "")]
    assert git.environment["GIT_CONFIG_COUNT"] == str(first + 3)
    git.says["config --get"] = (1, b"")
    assert str(in_git(tmp_path).record()["diff"]).startswith("git is older than 2.31 and would run filters")


@pytest.mark.parametrize(("count", "is_refused"), [(1000, False), (1001, True)])
def test_very_many_filters_are_refused(git: Git, tmp_path: Path, count: int, is_refused: bool) -> None:
    git.says["config --local --includes"] = (0, b"".join(b"filter.%d.clean\0" % number for number in range(count)))
    if not is_refused:
        in_git(tmp_path).record()
        return
    with pytest.raises(UserError, match="has 1,001 settings of filters, and at most 1,000 can be switched off"):
        in_git(tmp_path).record()


def test_a_difference_leaves_secrets_out_and_is_not_kept_if_it_is_immense(git: Git, tmp_path: Path) -> None:
    plain_words = "--no-renames --no-color --no-ext-diff --no-textconv --ignore-submodules=dirty --submodule=short"
    git.says[f"diff HEAD {plain_words} --relative --name-only"] = (0, b"a.py\0.env\0my.txt\0")
    git.says["diff"] = (0, b"x" * (10 << 20))
    assert in_git(tmp_path, "my.txt").record()["diff"] == "x" * (10 << 20)
    assert git.calls[-1][-4:] == ("--", ".", ":(exclude,literal).env", ":(exclude,literal)my.txt")
    git.says["diff"] = (0, b"x" * ((10 << 20) + 1))
    assert in_git(tmp_path).record()["diff"] == "larger than 10 MB, so it is not kept"
    git.says["diff"], git.says["rev-parse HEAD"] = (128, b""), (128, b"")
    assert in_git(tmp_path).record() == {"top": str(tmp_path), "commit": None, "diff": None}


def test_a_difference_shows_no_secret_that_a_script_had(git: Git, tmp_path: Path) -> None:
    key = "0123456789abcdef0123"
    parts = [
        f"diff --git a/keys.sh b/keys.sh\n-export HF_TOKEN={key}\n",
        f"diff --git a/train b/train\n #!/bin/bash\n-export HF_TOKEN={key}\n",
        f"diff --git a/launch b/launch\n@@ -9 +9 @@ f\n-export HF_TOKEN={key}\n",
        f"diff --git a/train.slurm.j2 b/train.slurm.j2\n@@ -9 +9 @@\n---token {key}\n",
        f'diff --git "a/a\\tb.sh" "b/a\\tb.sh"\n-wandb login {key}\n',
        "diff --git a/a.sh b/a.sh\n+export HF_TOKEN=$TOKEN\n",
        f"diff --git a/a.py b/a.py\n+api_key={key}\n",
        f'diff --git "a/a\\tb.py" "b/a\\tb.py"\n+api_key={key}\n',
    ]
    git.says["diff"] = (0, "".join(parts).encode())
    assert in_git(tmp_path).record()["diff"] == "".join(parts[5:])


def test_a_script_in_which_a_secret_is_written_stays_behind(tmp_path: Path) -> None:
    secret = "export WANDB_API_KEY=0123456789abcdef0123\n"
    write(tmp_path, "keys.sh", "job.sbatch", "notes.txt", "api.py", text=secret)
    write(tmp_path, "run", text=f"#!/usr/bin/env bash\n{secret}")
    write(tmp_path, "other.sh", text="export WANDB_API_KEY=$(cat ~/.key)\n")
    (tmp_path / "link.sh").symlink_to("keys.sh")
    found = select(plain(tmp_path))
    assert found.files == ("api.py", "link.sh", "notes.txt", "other.sh")
    assert {name for name, reason in found.left_out if reason.startswith("a secret is written in it")} == {
        *("keys.sh", "job.sbatch", "run"),
    }


def test_the_files_of_a_repository_are_those_that_git_lists(git: Git, tmp_path: Path) -> None:
    write(tmp_path, "a.py", "new.py", "runs/abcd/job.json", "runs/abcd/code/trainjob/x.py", "sub/y.py")
    (tmp_path / "nested").mkdir()
    (tmp_path / "out").symlink_to(tmp_path.parent)
    git.says["ls-files -z --cached --recurse-submodules"] = (0, b"a.py\0a.py\0gone.py\0nested\0out/x.py\0")
    git.says["ls-files -z --others --exclude-standard"] = (0, b"new.py\0runs/abcd/job.json\0sub/y.py\0")
    write(tmp_path.parent, "x.py")
    found = select(in_git(tmp_path))
    assert found.files == ("a.py",)
    assert dict(found.left_out) == {
        "nested": "a git repository of its own that is no submodule, or is not checked out",
        "out/x.py": "behind a link that leads out of the project",
    }
    assert select(in_git(tmp_path), untracked=True).files == ("a.py", "new.py", "sub/y.py")
    write(tmp_path, "abcd/job.json", "abcd/code/trainjob/x.py")
    git.says["ls-files -z --others --exclude-standard"] = (0, b"new.py\0abcd/job.json\0")
    assert select(in_git(tmp_path), untracked=True).files == ("a.py", "new.py")


def test_the_top_of_a_repository_is_what_git_says(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    assert find(tmp_path / "sub") == Project(tmp_path, "sub", in_git=True)
    assert find(tmp_path, tmp_path / "sub") == Project(tmp_path / "sub", ".", in_git=True)
    git.says["rev-parse --show-toplevel"] = (128, b"")
    assert find(tmp_path / "sub") == Project(tmp_path / "sub", ".", in_git=False)
    git.stderr = "fatal: add an exception: git config --global --add safe.directory x"
    with pytest.raises(UserError, match="git does not trust"):
        find(tmp_path / "sub")

    def missing(*_: Any, **__: Any) -> None:
        raise CommandError("git is not there")

    monkeypatch.setattr(process, "run", missing)
    assert projects.top_of_repository(tmp_path) is None


def test_where_no_repository_is_git_is_not_asked_unless_the_user_names_one(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").rmdir()
    assert projects.top_of_repository(tmp_path) is None
    assert git.calls == []
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert projects.top_of_repository(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "EMAIL"])
def test_the_author_of_a_file_is_told_unless_it_is_this_user(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "f.sh").touch()
    assert other_author(tmp_path / "f.sh") is None, "it was never committed"
    git.says["--literal-pathspecs log -1"] = (0, b"them@there\n")
    assert other_author(tmp_path / "f.sh") == "them@there"
    assert git.calls[-3][-2:] == ("--", "f.sh")
    for where in ("--global", "--system"):
        git.says[f"config {where} user.email"] = (0, b"them@there\n")
        assert other_author(tmp_path / "f.sh") is None
        del git.says[f"config {where} user.email"]
    monkeypatch.setenv(name, "them@there")
    assert other_author(tmp_path / "f.sh") is None
