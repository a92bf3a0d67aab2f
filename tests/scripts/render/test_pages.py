"""What stands around the shell library: a page refuses another folder and another library, and says what it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.render_cases import HOSTILE, cluster, rendered, request, script
from trainjob.backends import folder
from trainjob.cluster.base import Cluster
from trainjob.contract.paths import RunPaths
from trainjob.render import library
from trainjob.render.request import Request

SLURM = cluster(kind="slurm", nodes={"count": 1, "cpus": 1}, python=sys.executable)
LOCAL = cluster(python=sys.executable)


def made(base: Path, asked: Request) -> RunPaths:
    paths = folder.create(base / "a run", rendered(asked), None, None)
    paths.project.mkdir()
    return paths


def job_ran(path: Path, at: Path) -> tuple[int, str]:
    environ = {**os.environ, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1"}
    ended = ran(["bash", path], folder=at, environ=environ)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("place", [LOCAL, SLURM], ids=["local", "slurm"])
@pytest.mark.parametrize("change", ["another text", "one file more", "one file less"])
def test_another_library_is_refused_before_anything_is_touched(tmp_path: Path, place: Cluster, change: str) -> None:
    asked = request(place, command=["touch", "canary"])
    paths = made(tmp_path, asked)
    shell = paths.code / "trainjob/launch/shell"
    if change == "one file less":
        (shell / "group.sh").unlink()
    else:
        with (shell / ("record.sh" if change == "another text" else "added.sh")).open("a") as stream:
            stream.write("# added\n")
    before = sorted(path.name for path in paths.folder.iterdir())
    code, err = job_ran(paths.folder / rendered(asked).script, paths.folder)
    found = subprocess.run(
        "sha256sum -- *.sh | sha256sum",
        shell=True,
        cwd=shell,
        env={**os.environ, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
    ).stdout.split()[0]
    assert (code, err) == (
        1,
        f"trainjob: the shell library in {shell} has sha256 {found.decode()}, and this script and job.json were "
        f"rendered with {library.digest()}: submit the job again, or put back the code that came with this script\n",
    )
    assert sorted(path.name for path in paths.folder.iterdir()) == before


def test_a_run_that_is_rendered_anew_gets_the_library_that_belongs_to_it(tmp_path: Path) -> None:
    asked = request(LOCAL, command=["true"])
    paths = made(tmp_path, asked)
    (paths.code / "trainjob/launch/shell/record.sh").write_text("# of another release\n")
    folder.write_again(paths, rendered(asked))
    assert job_ran(paths.job_script, tmp_path)[0] == 0
    assert sorted(path.name for path in paths.code.iterdir()) == ["project", "trainjob"]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.UTF-8", "de_DE.UTF-8"])
def test_the_digest_is_the_same_whatever_the_users_language(tmp_path: Path, locale: str) -> None:
    paths = made(tmp_path, request(LOCAL, command=["true"]))
    environ = {**os.environ, "LC_ALL": locale, "LANG": locale, "CDPATH": str(tmp_path)}
    assert subprocess.run(["bash", paths.job_script], env=environ, check=False).returncode == 0


def test_the_digest_is_in_job_json(tmp_path: Path) -> None:
    paths = made(tmp_path, request(LOCAL, command=["true"]))
    assert json.loads(paths.job.read_text())["library"] == library.digest()
    assert f"\nlibrary={library.digest()}\n" in paths.job_script.read_text()


def test_a_page_in_no_run_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(script(request(LOCAL)))
    (tmp_path / "job.sbatch").write_text(script(request(SLURM)))
    assert job_ran(tmp_path / "job.sh", Path("/")) == (
        1,
        f"trainjob: {tmp_path} is no run directory, which has job.json and code/ beside its job.sh: "
        "trainjob render -o FOLDER writes one\n",
    )
    assert job_ran(tmp_path / "job.sbatch", tmp_path) == (
        1,
        f"trainjob: node node1 sees no run directory in {tmp_path}: call sbatch in the folder of job.sbatch, "
        "on storage that all nodes share\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.sbatch", "job.sh"]


def test_a_job_without_its_code_is_no_run_directory(tmp_path: Path) -> None:
    paths = made(tmp_path, request(LOCAL, command=["true"]))
    shutil.rmtree(paths.code / "trainjob")
    code, err = job_ran(paths.job_script, tmp_path)
    assert (code, "is no run directory" in err, paths.attempt.exists()) == (1, True, False)


def comment(asked: Request) -> str:
    (line,) = (line for line in script(asked).splitlines() if line.startswith("# Ranks run"))
    return line


def test_a_page_shows_the_command_that_job_json_has() -> None:
    asked = request(LOCAL, command=["python", "train.py", "--note", "a b"])
    assert comment(asked) == "# Ranks run, as job.json has it: python train.py --note 'a b'"
    assert json.loads(rendered(asked).files["job.json"].content)["command"] == ["python", "train.py", "--note", "a b"]


def test_what_a_terminal_would_not_show_is_written_out() -> None:
    asked = request(LOCAL, command=["echo", "a\nb", "\x1b[31m", "\u202e", "\u2028"])
    assert comment(asked) == r"# Ranks run, as job.json has it: echo 'a\nb' '\x1b[31m' '\u202e' '\u2028'"


def test_a_very_long_command_is_shortened() -> None:
    assert comment(request(LOCAL, command=["echo", "x" * 8192])).endswith("xxx… (8197 characters)")
    assert len(comment(request(LOCAL, command=["echo", "x" * 8192]))) < 230


@pytest.mark.parametrize("place", [LOCAL, SLURM], ids=["local", "slurm"])
def test_no_word_of_a_command_stands_in_the_script_itself(place: Cluster) -> None:
    code = [line for line in script(request(place, command=["echo", *HOSTILE])).splitlines() if line[:1] != "#"]
    assert [line for line in code if "canary" in line] == []


def test_the_title_is_not_quoted() -> None:
    title = script(request(LOCAL, name="it's mine; $(x)", command=["true"])).splitlines()[1]
    assert title == "# Job it's mine; $(x) on here: 1 instance on 1 host, engine command"
