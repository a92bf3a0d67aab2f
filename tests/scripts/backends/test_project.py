"""Which files of a project a run takes along, and what of its state in git is recorded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.submit_cases import everything_below, git, repository, write
from trainjob.backends.project import Project, Selection, copy, find, other_author, select
from trainjob.contract.errors import UserError
from trainjob.contract.paths import RunPaths
from trainjob.records.files import read_json, write_json

SECRETS = [
    ".env",
    ".env.local",
    "deploy/.ENV",
    "secrets.env",
    "server.pem",
    "server.PEM",
    "tls/private.key",
    "cert.p12",
    "cert.pfx",
    "id_rsa",
    "id_ed25519.old",
    ".netrc",
    ".env/inside",
    "keys.key/inside",
    ".npmrc",
    ".git-credentials",
    ".aws/credentials",
    ".docker/config.json",
    ".kube/config",
    "hf_token",
    "service-account.json",
    "terraform.tfstate",
]
ODD_NAMES: list[str | bytes] = [
    "two words.py",
    "line\nbreak.py",
    "-dash.py",
    "näh ✓.py",
    "'quote\".py",
    "back\\slash.py",
    b"latin\xff.py",
]


def taken(project: Project, *, untracked: bool = False) -> set[str]:
    return set(select(project, untracked=untracked).files)


def left_out(project: Project, *, untracked: bool = False) -> dict[str, str]:
    return dict(select(project, untracked=untracked).left_out)


def copied(project: Project, target: Path, *, untracked: bool = False) -> set[str]:
    copy(project, select(project, untracked=untracked), target)
    return everything_below(target)


# --- Where the project is.


def test_in_git_the_project_is_the_top_level_and_remembers_where_one_stood(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "src/deep/train.py")
    assert find(top / "src/deep") == Project(top, "src/deep", in_git=True)


def test_without_git_the_project_is_the_working_folder(tmp_path: Path) -> None:
    assert find(tmp_path) == Project(tmp_path, ".", in_git=False)


def test_a_folder_that_was_asked_for_is_the_project(tmp_path: Path) -> None:
    write(tmp_path, "p/src/train.py")
    assert find(tmp_path / "p/src", tmp_path / "p") == Project(tmp_path / "p", "src", in_git=False)
    assert find(tmp_path, tmp_path / "p").start == "."


def test_a_part_of_a_repository_can_be_the_project(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "a/one.py", "b/two.py")
    assert taken(find(top / "a", top / "a")) == {"one.py"}


def test_a_link_to_the_project_is_the_project(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "src/train.py")
    (tmp_path / "link").symlink_to(top / "src")
    assert find(tmp_path / "link") == Project(top, "src", in_git=True)


@pytest.mark.parametrize("name", ["line\nbreak\n", " spaces ", "näh"])
def test_the_top_may_be_called_anything(tmp_path: Path, name: str) -> None:
    top = repository(tmp_path / name, "train.py")
    assert find(top) == Project(top, ".", in_git=True)


def test_a_project_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--project .*nowhere is not a folder: give the top folder of your project"):
        find(tmp_path, tmp_path / "nowhere")


@pytest.mark.parametrize("asked", [True, False])
def test_the_whole_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    project = find(tmp_path, tmp_path if asked else None)  # a built-in task, which copies nothing, may start here
    with pytest.raises(UserError, match=r"the project would be all of .*: change into its folder, or give --project"):
        select(project)


def test_the_whole_disk_is_refused() -> None:
    with pytest.raises(UserError, match="the project would be all of /:"):
        select(find(Path("/")))


def test_a_home_that_is_a_repository_is_taken_by_what_git_tracks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    repository(tmp_path, "train.py")
    write(tmp_path, "private.txt")
    assert taken(find(tmp_path)) == {"train.py"}


def test_a_repository_that_git_does_not_trust_is_not_taken_for_a_plain_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "p", "train.py")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"(?s)git does not trust .*git config --global --add safe.directory"):
        find(top)


def test_without_git_installed_the_project_is_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "p", "src/train.py")
    monkeypatch.setenv("PATH", "/nowhere")
    assert find(top / "src") == Project(top / "src", ".", in_git=False)


# --- Which files.


def test_what_git_tracks_is_taken_and_other_files_by_choice(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py", ".gitignore")
    write(top, ".gitignore", text="*.out\n")
    write(top, "new.py", "big.out")
    assert taken(find(top)) == {"train.py", ".gitignore"}
    assert taken(find(top), untracked=True) == {"train.py", ".gitignore", "new.py"}


def test_without_git_everything_is_taken_but_folders_that_nobody_means(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", ".venv/x.py", "lib/__pycache__/a.pyc", "node_modules/y.js", ".git-like")
    assert taken(find(tmp_path)) == {"train.py", "lib/a.py", ".git-like"}


@pytest.mark.parametrize("in_git", [True, False])
def test_secrets_are_never_copied(tmp_path: Path, in_git: bool) -> None:
    top = tmp_path / "p"
    for name in ("a.py", "environment.py", "keyboard.py", *SECRETS):
        if name not in (".env", "server.PEM"):
            write(top, name)
    project = find(repository(top) if in_git else top)
    assert copied(project, tmp_path / "copy", untracked=True) == {"a.py", "environment.py", "keyboard.py"}
    assert set(left_out(project)) == set(SECRETS) - {".env", "server.PEM"}


@pytest.mark.parametrize("name", SECRETS)
def test_each_secret_is_told_by_its_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    assert left_out(find(tmp_path)) == {name: "may hold a secret"}


@pytest.mark.parametrize("in_git", [True, False])
def test_the_clusters_secrets_file_stays_whatever_it_is_called(tmp_path: Path, in_git: bool) -> None:
    write(tmp_path / "p", "train.py", "conf/tokens.txt")
    top = repository(tmp_path / "p") if in_git else tmp_path / "p"
    project = find(top / "conf", top, str(top / "conf/tokens.txt"))
    assert left_out(project) == {"conf/tokens.txt": "may hold a secret"}
    assert taken(project) == {"train.py"}


def test_a_secrets_file_elsewhere_is_no_concern_of_the_project(tmp_path: Path) -> None:
    assert find(tmp_path, None, "/elsewhere/tokens").secrets_file is None


def test_files_above_10_mb_are_data_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "just.bin", "big.bin")
    os.truncate(tmp_path / "just.bin", 10 * 1024 * 1024)
    os.truncate(tmp_path / "big.bin", 10 * 1024 * 1024 + 1)
    assert left_out(find(tmp_path)) == {"big.bin": "larger than 10 MB, so it counts as data"}
    assert taken(find(tmp_path)) == {"train.py", "just.bin"}


def test_more_than_500_mb_is_refused(tmp_path: Path) -> None:
    for number in range(51):
        write(tmp_path, f"{number}.bin")
        os.truncate(tmp_path / f"{number}.bin", 10 * 1024 * 1024)
    with pytest.raises(UserError, match=r"has 510 MB of files, and a run copies at most 500 MB: give --project"):
        select(find(tmp_path))


@pytest.mark.parametrize("in_git", [True, False])
def test_links_stay_links(tmp_path: Path, in_git: bool) -> None:
    top = tmp_path / "p"
    write(top, "lib/a.py", ".env")
    links = {"file": "lib/a.py", "folder": "lib", "broken": "nowhere", "outside": "/etc/passwd", "secret": ".env"}
    for name, target in links.items():
        (top / name).symlink_to(target)
    project = find(repository(top) if in_git else top)
    assert copied(project, tmp_path / "copy") == {"lib/a.py", *links}
    assert {name: os.readlink(tmp_path / "copy" / name) for name in links} == links


def test_a_tracked_folder_that_is_now_a_link_to_the_outside_is_not_followed(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py", "conf/a.yaml", "inside/b.yaml", "kept/b.yaml")
    write(tmp_path, "outside/a.yaml", text="hunter2\n")
    for name, target in (("conf", tmp_path / "outside"), ("inside", "kept")):
        shutil.rmtree(top / name)
        (top / name).symlink_to(target)
    assert copied(find(top), tmp_path / "copy") == {"train.py", "inside/b.yaml", "kept/b.yaml"}
    assert left_out(find(top)) == {"conf/a.yaml": "behind a link that leads out of the project"}


@pytest.mark.parametrize("in_git", [True, False])
def test_file_names_may_be_anything(tmp_path: Path, in_git: bool) -> None:
    top = tmp_path / "p"
    write(top, *ODD_NAMES)
    project = find(repository(top) if in_git else top)
    assert copied(project, tmp_path / "copy") == {os.fsdecode(name) for name in ODD_NAMES}


def test_a_name_that_is_no_text_can_be_recorded(tmp_path: Path) -> None:
    write(tmp_path, b"latin\xff.key")
    record = tmp_path / "submission.json"
    write_json(record, select(find(tmp_path)).left_out)
    assert read_json(record) == [["latin\udcff.key", "may hold a secret"]]


def test_a_tracked_file_that_was_deleted_is_not_missed(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py", "old.py", ".env")
    (top / "old.py").unlink()
    (top / ".env").unlink()
    assert select(find(top)) == Selection(("train.py",), ())


def test_files_in_a_conflict_are_taken_once(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    for branch in ("one", "two"):
        git(top, "checkout", "--quiet", "-b", branch, "HEAD" if branch == "one" else "one~1")
        write(top, "train.py", text=f"{branch}\n")
        git(top, "commit", "--quiet", "--all", "--message", branch)
    with pytest.raises(AssertionError):
        git(top, "merge", "one")
    assert len(git(top, "ls-files").splitlines()) == 3
    assert select(find(top)).files == ("train.py",)


def test_files_of_a_submodule_are_taken(tmp_path: Path) -> None:
    library = repository(tmp_path / "library", "lib.py", ".env")
    top = repository(tmp_path / "p", "train.py")
    git(top, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(top, "commit", "--quiet", "--message", "library")
    project = find(top)
    assert taken(project) == {"train.py", ".gitmodules", "vendor/lib/lib.py"}
    assert left_out(project) == {"vendor/lib/.env": "may hold a secret"}


def test_a_submodule_that_is_not_checked_out_is_reported(tmp_path: Path) -> None:
    library = repository(tmp_path / "library", "lib.py")
    top = repository(tmp_path / "p", "train.py")
    git(top, "submodule", "--quiet", "add", str(library), "lib")
    git(top, "submodule", "--quiet", "deinit", "--force", "lib")
    assert "is not checked out" in left_out(find(top))["lib"]


def test_a_repository_within_the_project_is_reported(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    repository(top / "other", "x.py")
    (name,) = left_out(find(top), untracked=True)
    assert name.rstrip("/") == "other"


@pytest.mark.parametrize("in_git", [True, False])
def test_earlier_runs_are_not_taken_along(tmp_path: Path, in_git: bool) -> None:
    top = tmp_path / "p"
    if in_git:
        repository(top, "train.py")
    write(top, "train.py", "runs/one/job.json", "runs/one/code/trainjob/__init__.py", "runs/notes.txt", "job.json")
    assert taken(find(top), untracked=True) == {"train.py", "runs/notes.txt", "job.json"}


def test_pipes_and_sockets_stay_behind(tmp_path: Path) -> None:
    write(tmp_path, "train.py")
    os.mkfifo(tmp_path / "pipe")
    assert select(find(tmp_path)) == Selection(("train.py",), ())


# --- The copy.


def test_a_copy_keeps_content_and_mode(tmp_path: Path) -> None:
    write(tmp_path, "p/run.sh", text="#!/bin/sh\n")
    (tmp_path / "p/run.sh").chmod(0o750)
    copied(find(tmp_path / "p"), tmp_path / "copy")
    assert (tmp_path / "copy/run.sh").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "copy/run.sh").stat().st_mode & 0o777 == 0o750


def test_the_working_folder_is_there_although_nothing_of_it_is_taken(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    (top / "empty/deep").mkdir(parents=True)
    copied(find(top / "empty/deep"), tmp_path / "copy")
    assert (tmp_path / "copy/empty/deep").is_dir()


def test_a_file_that_went_away_meanwhile_is_named(tmp_path: Path) -> None:
    write(tmp_path, "p/train.py")
    project = find(tmp_path / "p")
    selection = select(project)
    (tmp_path / "p/train.py").unlink()
    with pytest.raises(UserError, match=r"project file .*/train.py can't be read \(No such file or directory\)"):
        copy(project, selection, tmp_path / "copy")


# --- The record.


def test_a_clean_tree_is_a_commit_and_no_difference(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    assert find(top).record() == {"top": str(top), "commit": git(top, "rev-parse", "HEAD").strip(), "diff": ""}


def test_without_git_only_the_place_is_recorded(tmp_path: Path) -> None:
    assert find(tmp_path).record() == {"top": str(tmp_path), "commit": None, "diff": None}


def test_before_the_first_commit_there_is_nothing_to_differ_from(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert find(tmp_path).record() == {"top": str(tmp_path), "commit": None, "diff": None}


def test_no_secret_below_a_part_of_a_repository_is_in_the_difference(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "part/train.py", "part/.npmrc", "part/own.txt", "other.py")
    write(top, "part/train.py", "other.py", text="changed\n")
    write(top, "part/.npmrc", "part/own.txt", text="hunter2\n")
    diff = find(top / "part", top / "part", str(top / "part/own.txt")).record()["diff"] or ""
    assert diff.count("+changed") == 1
    assert "hunter2" not in diff


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_the_recorded_difference(tmp_path: Path, name: str) -> None:
    top = repository(tmp_path / "p", "train.py", "sub/train.py", name, f"sub/{name}")
    write(top, "train.py", text="changed\n")
    write(top, name, f"sub/{name}", text="TOKEN=hunter2\n")
    diff = find(top).record()["diff"]
    assert diff is not None
    assert "+changed" in diff
    assert "hunter2" not in diff


def test_the_clusters_secrets_file_is_not_in_the_difference(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py", "to*kens.txt", "tokens.txt")
    write(top, "to*kens.txt", "train.py", text="hunter2\n")
    write(top, "tokens.txt", text="kept\n")
    diff = find(top, None, str(top / "to*kens.txt")).record()["diff"] or ""
    assert diff.count("+hunter2") == 1
    assert "+kept" in diff


def test_the_difference_can_be_applied_whatever_git_shows_on_a_terminal(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    git(top, "config", "color.ui", "always")
    git(top, "config", "diff.external", "false")
    write(top, "train.py", text="changed\n")
    (tmp_path / "patch").write_text(find(top).record()["diff"] or "")
    git(top, "checkout", "--quiet", "train.py")
    git(top, "apply", str(tmp_path / "patch"))
    assert (top / "train.py").read_text() == "changed\n"


def test_an_immense_difference_is_not_kept(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "table.csv")
    write(top, "table.csv", text="0123456789\n" * 1_000_000)
    assert find(top).record()["diff"] == "larger than 10 MB, so it is not kept"


def test_a_record_of_odd_names_and_bytes_is_json(tmp_path: Path) -> None:
    top = repository(tmp_path / os.fsdecode(b"latin\xff"), *ODD_NAMES)
    write(top, *ODD_NAMES, text="changed\n")
    (top / "two words.py").write_bytes(b"\xff\n")
    paths = RunPaths(tmp_path)
    write_json(paths.submission, find(top).record())
    assert json.loads(paths.submission.read_bytes())["top"] == str(top)


# --- Programs that the project's own configuration names.


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that leaves `canary` behind."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\ncat\n")
    path.chmod(0o755)
    return str(path)


def looked_at(top: Path) -> dict[str, str | None]:
    project = find(top)
    recorded = project.record()
    select(project, untracked=True)
    return recorded


def changed_repository(top: Path) -> Path:
    repository(top, "train.py", "sub/inside.py")
    write(top, ".gitattributes", text="* filter=odd diff=odd\n")
    write(top, "train.py", text="changed\n")
    return top


@pytest.mark.parametrize(
    "key",
    [
        *("core.fsmonitor", "diff.external", "core.pager", "pager.diff", "filter.odd.clean", "filter.odd.process"),
        *("diff.odd.textconv", "diff.odd.command"),
    ],
)
@pytest.mark.parametrize("place", ["config", "included", "worktree"])
def test_git_runs_no_program_that_the_project_names(tmp_path: Path, program: str, key: str, place: str) -> None:
    top = changed_repository(tmp_path / "p")
    if place == "config":
        git(top, "config", key, program)
    elif place == "included":
        git(top, "config", "--file", str(top / ".git/more"), key, program)
        git(top, "config", "include.path", "more")
    else:
        git(top, "config", "extensions.worktreeConfig", "true")
        git(top, "config", "--worktree", key, program)
    recorded = looked_at(top)
    assert not (tmp_path / "canary").exists()
    assert "+changed" in (recorded["diff"] or "")


@pytest.mark.parametrize("kind", ["clean", "process"])
def test_git_runs_no_filter_whatever_its_name(
    tmp_path: Path, program: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "me")
    signs = [bytes([code]) for code in range(1, 256) if code != ord("\n")]
    names = [b"a=b", b"=", b"a.b=c.clean", *(b"a%sb" % sign for sign in signs)]
    top = repository(tmp_path / "p", "train.py", *(f"f{number}" for number in range(len(names))))
    with (top / ".git/config").open("ab") as config, (top / ".gitattributes").open("wb") as attributes:
        for number, name in enumerate(names):
            quoted = name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            config.write(b'[filter "%s"]\n\t%s = %s\n' % (quoted, kind.encode(), program.encode()))
            attributes.write(b"f%d filter=%s\n" % (number, name))
            write(top, f"f{number}", text="changed\n")
    recorded = looked_at(top)
    assert not (tmp_path / "canary").exists()
    assert (recorded["diff"] or "").count("+changed") == len(names)


def test_too_many_filters_are_refused_in_clear_words(tmp_path: Path) -> None:
    top = repository(tmp_path / "p", "train.py")
    with (top / ".git/config").open("a") as config:
        config.writelines(f'[filter "x{number}"]\n\tclean = cat\n' for number in range(40_000))
    with pytest.raises(UserError, match="has 40,000 settings of filters"):
        find(top).record()


def test_a_git_that_can_not_switch_filters_off_is_not_asked(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = changed_repository(tmp_path / "p")
    git(top, "config", "filter.odd.clean", program)
    older = tmp_path / "older"
    write(older, "git", text=f'#!/bin/sh\nunset GIT_CONFIG_COUNT\nexec {shutil.which("git")} "$@"\n')
    (older / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{older}:{os.environ['PATH']}")
    assert "older than 2.31" in (find(top).record()["diff"] or "")
    assert not (tmp_path / "canary").exists()


def test_git_runs_no_hook(tmp_path: Path, program: str) -> None:
    top = changed_repository(tmp_path / "p")
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (top / ".git/hooks").mkdir(exist_ok=True)
        (top / ".git/hooks" / name).symlink_to(program)
    os.utime(top / "sub/inside.py", (1, 1))  # so that git would write what it has looked up into the index
    looked_at(top)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"core.sshCommand": "PROGRAM", "remote.origin.url": "ssh://host/x"},
        {"remote.origin.uploadpack": "PROGRAM"},
        {"remote.origin.uploadpack": "PROGRAM", "protocol.file.allow": "always"},
        {"remote.origin.url": "ext::PROGRAM", "protocol.ext.allow": "always"},
        {"remote.origin.url": "git://localhost/x", "core.gitProxy": "PROGRAM"},
        {"credential.helper": "!PROGRAM", "core.askPass": "PROGRAM", "remote.origin.url": "http://127.0.0.1:9/x"},
    ],
    ids=lambda settings: "+".join(settings),
)
def test_a_partial_clone_fetches_nothing(tmp_path: Path, program: str, settings: dict[str, str]) -> None:
    origin = repository(tmp_path / "origin", "train.py")
    git(origin, "config", "uploadpack.allowFilter", "true")
    words = ("--quiet", "--no-checkout", "--filter=blob:none", f"file://{origin}", str(tmp_path / "p"))
    git(tmp_path, "clone", *words)
    for key, value in settings.items():
        git(tmp_path / "p", "config", key, value.replace("PROGRAM", program))
    before = everything_below(tmp_path / "p/.git/objects")
    recorded = looked_at(tmp_path / "p")
    assert not (tmp_path / "canary").exists()
    assert everything_below(tmp_path / "p/.git/objects") == before
    assert recorded["commit"] == git(origin, "rev-parse", "HEAD").strip()


@pytest.mark.parametrize("key", ["core.fsmonitor", "diff.external", "filter.odd.clean"])
def test_git_runs_no_program_that_a_submodule_names(tmp_path: Path, program: str, key: str) -> None:
    inner = repository(tmp_path / "inner", "inner.py")
    top = repository(tmp_path / "p", "train.py")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(top, "commit", "--quiet", "--message", "second")
    write(top / "inner", "inner.py", text="committed\n")
    write(top / "inner", ".gitattributes", text="* filter=odd\n")
    git(top / "inner", "commit", "--quiet", "--all", "--message", "third")
    git(top, "config", "diff.submodule", "diff")
    git(top / "inner", "config", key, program)
    write(top / "inner", "inner.py", text="changed\n")
    assert "+Subproject commit" in (looked_at(top)["diff"] or "")
    assert "inner/inner.py" in taken(find(top), untracked=True)
    assert not (tmp_path / "canary").exists()


def test_the_last_author_of_a_file_is_told_if_it_is_somebody_else(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(users))
    top = repository(tmp_path / "p", "train.sbatch", "sub/other.sbatch")
    git(top, "config", "log.showSignature", "true")
    git(top, "config", "gpg.program", program)
    author = git(top, "log", "-1", "--no-show-signature", "--format=%ae").strip()
    users.write_text(f"[user]\n\temail = {author}\n")
    assert other_author(top / "train.sbatch") is None
    users.write_text("[user]\n\temail = else@there\n")
    assert other_author(top / "sub/other.sbatch") == author
    git(top, "config", "user.email", author)  # which comes with the repository
    assert other_author(top / "sub/other.sbatch") == author
    write(top, "new.sbatch")
    assert other_author(top / "new.sbatch") is None  # nobody has committed it
    assert other_author(tmp_path / "elsewhere.sbatch") is None
    assert not (tmp_path / "canary").exists()
