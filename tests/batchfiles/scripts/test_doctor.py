"""trainjob doctor, as it is called: exit codes, formats, called scripts, and what it loads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchfiles.bash.syntax import syntax_fault
from tests.support.printed_json import reported
from tests.support.programs import ran

WRONG = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=1:00:00
#SBATCH --output=%j.log
#SBATCH --exclusive
set -e
srun bash run.sh
"""
PROGRAM = "from trainjob.cli.main import main; import sys; main(sys.argv[1:])"
RUN = "export OMP_NUM_THREADS=4\ntorchrun --nproc-per-node=8 train.py\n"


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    return ran([sys.executable, "-c", PROGRAM, "doctor", *words], folder=folder, environ=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.sbatch").write_text(WRONG)
    (tmp_path / "run.sh").write_text(RUN)
    return tmp_path


def test_a_fault_in_a_called_script_is_told_in_its_line(folder: Path) -> None:
    ended = doctor(folder, "train.sbatch")
    assert "run.sh:2: error: nnodes-missing: 2 nodes, and torchrun has no --nnodes" in ended.stdout
    assert "train.sbatch:3:1: warning: time-limit-unhandled" in ended.stdout
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_script_that_is_not_here_is_told_once(folder: Path) -> None:
    (folder / "run.sh").unlink()
    ended = doctor(folder, "train.sbatch")
    assert ended.stdout.count("run.sh (line 7)") == 1
    assert "not known without running it: run.sh (line 7) is not here" in ended.stdout
    assert ended.returncode == 0


@pytest.mark.parametrize("kind", ["huge", "pipe", "/proc/kmsg"])
def test_a_called_file_is_read_in_part_or_not_at_all(folder: Path, kind: str) -> None:
    (folder / "run.sh").unlink()
    if kind == "huge":
        with (folder / "run.sh").open("w") as stream:
            stream.write(RUN)
            stream.truncate(6 << 30)
    elif kind == "pipe":
        os.mkfifo(folder / "run.sh")
    else:
        (folder / "run.sh").symlink_to(kind)
    # No more memory than a login node lets one have.
    limited = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", sys.executable, "-c", PROGRAM, "doctor"]
    ended = ran([*limited, "train.sbatch"], folder=folder, timeout_s=60)
    assert ended.stderr == ""
    assert ("nnodes-missing" in ended.stdout) == (kind == "huge")


@pytest.mark.parametrize("name", ["train.py", "pyproject.toml", ".trainjob-doctor.toml"])
@pytest.mark.parametrize("kind", ["huge", "/proc/kmsg"])
def test_no_file_beside_it_is_read_as_a_whole(folder: Path, name: str, kind: str) -> None:
    if kind == "huge":
        with (folder / name).open("w") as stream:
            stream.write("import lightning\n\nlightning.Trainer().fit(None)\n" if name == "train.py" else "")
            stream.truncate(6 << 30)
    else:
        (folder / name).symlink_to(kind)
    (folder / "train.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --signal=USR1@120\nsrun torchrun --nproc_per_node=2 train.py\n"
    )
    limited = ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", sys.executable, "-c", PROGRAM, "doctor"]
    ended = ran([*limited, "train.sbatch"], folder=folder, timeout_s=60)
    assert ("larger than 1048576 bytes" in ended.stderr) == ((name, kind) == (".trainjob-doctor.toml", "huge"))
    assert ("lightning-under-torchrun" in ended.stdout) == ((name, kind) == ("train.py", "huge"))
    assert "memory" not in ended.stderr


def test_a_pipe_is_no_batch_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.sbatch")
    ended = doctor(folder, "pipe.sbatch")
    assert (ended.returncode, "pipe.sbatch is not a file: name a batch file" in ended.stderr) == (2, True)


def test_warnings_fail_only_with_strict(folder: Path) -> None:
    (folder / "run.sh").write_text(RUN.replace("--nproc", "--nnodes=2 --rdzv-backend=etcd-v2 --nproc"))
    assert doctor(folder, "train.sbatch").returncode == 0
    assert doctor(folder, "train.sbatch", "--strict").returncode == 1
    ignored = WRONG.replace("set -e", "# trainjob: ignore=time-limit-unhandled, no-kill-on-bad-exit\nset -e")
    (folder / "train.sbatch").write_text(ignored)
    ended = doctor(folder, "train.sbatch", "--strict")
    assert (ended.returncode, ended.stdout) == (0, "no faults found\n")


def test_json_has_every_finding(folder: Path) -> None:
    [report] = reported(doctor(folder, "--json", "train.sbatch").stdout)
    error = next(one for one in report["findings"] if one["severity"] == "error")
    assert (error["code"], error["line"], Path(error["path"]).name) == ("nnodes-missing", 2, "run.sh")
    assert error["happens"]
    assert error["cure"]


def test_github_annotates_lines(folder: Path) -> None:
    lines = doctor(folder, "--format", "github", "train.sbatch").stdout.splitlines()
    assert any(line.startswith("::error file=run.sh,line=2,title=nnodes-missing::") for line in lines)
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)


def test_sarif_names_rules_and_places(folder: Path) -> None:
    ended = doctor(folder, "--format", "sarif", "train.sbatch")
    [run] = json.loads(ended.stdout)["runs"]
    rules: list[dict[str, Any]] = run["tool"]["driver"]["rules"]
    error = next(one for one in run["results"] if one["level"] == "error")
    assert rules[error["ruleIndex"]]["id"] == error["ruleId"] == "nnodes-missing"
    place = error["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("run.sh", {"startLine": 2})


def test_a_cluster_file_sharpens(folder: Path) -> None:
    (folder / "clusters").mkdir()
    nodes = "{count: 2, accelerator: gpu, accelerators: 4, cpus: 32}"
    (folder / "clusters/hpc.yaml").write_text(f"kind: slurm\nnodes: {nodes}\nlimits: {{max_time: '00:30:00'}}\n")
    ended = doctor(folder, "--cluster", "hpc", "train.sbatch")
    assert "beyond-cluster: --time=1:00:00, and the cluster allows 30 minutes" in ended.stdout
    # --exclusive takes all of a node, whose GPUs only the cluster file has.
    assert "more-processes-than-gpus: 8 processes a node, and 4 GPUs" in ended.stdout
    assert "is of kind local" in doctor(folder, "--cluster", "local", "train.sbatch").stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "doctor was given no batch file"),
        (("absent.sbatch",), "absent.sbatch does not exist"),
        (("--explain", "port-fixt"), "did you mean port-fixed?"),
        (("--format", "xml", "train.sbatch"), "'xml' is not one of 'text', 'github', 'sarif'"),
    ],
)
def test_a_mistake_is_named(folder: Path, words: tuple[str, ...], says: str) -> None:
    ended = doctor(folder, *words)
    assert says in ended.stderr
    assert ended.returncode == 2


def test_a_code_is_explained(folder: Path) -> None:
    ended = doctor(folder, "--explain", "crlf")
    assert ended.stdout.startswith("crlf (error)\n")
    assert "Cure: " in ended.stdout


def test_only_doctor_loads_the_parser() -> None:
    program = "import sys; from trainjob.cli.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"
    for words, loaded in (
        (["--help"], False),
        (["doctor", "--help"], False),
        (["plan"], False),
        (["doctor", __file__], True),
    ):
        ended = ran([sys.executable, "-c", program, *words])
        assert ("tree_sitter" in ended.stdout.splitlines()[-1].split()) is loaded, words


FIXABLE = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=8
#SBATCH --mem=64GiB
#SBATCH --time=1:00:00
set -eo pipefail
export OMP_NUM_THREADS=2
torchrun --nproc-per-node=4 --master-port=29500 train.py
"""


def test_a_file_is_mended_and_the_old_one_kept(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FIXABLE)
    shown = doctor(tmp_path, "--diff", "train.sbatch")
    assert {"-#SBATCH --mem=64GiB", "+#SBATCH --mem=64G"} <= set(shown.stdout.splitlines())
    assert (shown.returncode, (tmp_path / "train.sbatch").read_text()) == (0, FIXABLE)
    ended = doctor(tmp_path, "--fix", "train.sbatch")
    assert (ended.returncode, "mended directive-refused, port-fixed" in ended.stderr) == (0, True)
    assert "time-limit-unhandled" in ended.stdout
    assert (tmp_path / "train.sbatch.orig").read_text() == FIXABLE
    assert doctor(tmp_path, "--fix", "--unsafe-fixes", "train.sbatch").stdout == "no faults found\n"
    text = (tmp_path / "train.sbatch").read_text()
    (requeues,) = [line for line in text.splitlines() if "scontrol requeue" in line]
    for restarts, asked, is_requeued in (("", "yes", True), ("0", "yes", True), ("1", "yes", False), ("", "", False)):
        job = f"SLURM_JOB_ID=7 SLURM_RESTART_COUNT={restarts} asked={asked}; scontrol() {{ echo requeued; }}"
        assert (ran(["bash", "-c", f"{job}; {requeues}"], code=0).stdout == "requeued\n") == is_requeued
    assert doctor(tmp_path, "--fix", "--unsafe-fixes", "train.sbatch").returncode == 0
    assert (tmp_path / "train.sbatch").read_text() == text


def test_a_fault_is_shown_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FIXABLE)
    lines = doctor(tmp_path, "train.sbatch").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "directive-refused" in line)
    assert lines[at].startswith("train.sbatch:5:9: error: ")
    assert lines[at + 1 : at + 3] == ["    | #SBATCH --mem=64GiB", "    |         ^"]


def test_a_key_is_not_printed(tmp_path: Path) -> None:
    key = "aabbccddeeff00112233445566778899aabbccdd"
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    asks = f"srun pip install git+https://me:{token}@github.com/a/b.git\n"
    (tmp_path / "train.sbatch").write_text(f"{FIXABLE}export WANDB_API_KEY={key}\n{asks}")
    for form in (("--format=text",), ("--format=github",), ("--format=sarif",), ("--json",)):
        told = doctor(tmp_path, *form, "train.sbatch").stdout
        assert {"secret-in-script", "installs-in-job"} <= set(re.findall(r"[\w-]+", told))
        assert key[:8] not in told
        assert token[:8] not in told


def test_git_takes_the_diff_of_a_file_without_a_last_newline(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py")
    (tmp_path / "mend.diff").write_text(doctor(tmp_path, "--diff", "train.sbatch").stdout)
    ran(["git", "apply", "-p0", "mend.diff"], folder=tmp_path, code=0)
    assert (tmp_path / "train.sbatch").read_text().endswith("srun --kill-on-bad-exit=1 python train.py")


def test_standard_input_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FIXABLE)
    reading = 'exec "$@" < train.sbatch'
    ended = ran(["bash", "-c", reading, "bash", sys.executable, "-c", PROGRAM, "doctor", "-"], folder=tmp_path)
    assert (ended.returncode, ended.stdout.startswith("<stdin>:5:9: error: ")) == (1, True)


def test_codes_are_chosen_by_options_and_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FIXABLE)
    ended = doctor(tmp_path, "--select", "port-fixed", "train.sbatch")
    assert (ended.returncode, ended.stdout.count("warning: ")) == (0, 1)
    (tmp_path / ".trainjob-doctor.toml").write_text(
        'strict = true\nignore = ["directive-refused", "time-limit-unhandled"]\n'
    )
    ended = doctor(tmp_path, "train.sbatch")
    assert (ended.returncode, ended.stdout.count("error: ")) == (1, 0)
    assert doctor(tmp_path, "--ignore", "port-fixed", "train.sbatch").stdout == "no faults found\n"
    (tmp_path / ".trainjob-doctor.toml").write_text("ignores = []\n")
    ended = doctor(tmp_path, "train.sbatch")
    assert (ended.returncode, "did you mean ignore?" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tool = 1", 0),
        ("tool = {trainjob = [1]}", 0),
        ("tool = {trainjob = {doctor = 1}}", 2),
        ("tool = {trainjob = {doctor = {select = [1]}}}", 2),
        ("tool = {trainjob = {doctor = {ignore = [[]]}}}", 2),
    ],
)
def test_a_file_of_settings_of_another_type_is_named(tmp_path: Path, text: str, code: int) -> None:
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --time=1\ntrue\n")
    (tmp_path / "pyproject.toml").write_text(text)
    ended = doctor(tmp_path, "--select", "no-srun", "train.sbatch")
    assert (ended.returncode, "BUG" in ended.stderr) == (code, False), ended.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file away")
def test_settings_that_another_user_puts_into_a_folder_for_everybody_have_no_say(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.sbatch").write_text(FIXABLE)
    settings = tmp_path / ".trainjob-doctor.toml"
    settings.write_text('ignore = ["port-fixed"]\n')
    os.chown(settings, 65534, 65534)
    tmp_path.chmod(0o1777)
    assert "port-fixed" in doctor(tmp_path / "mine", "train.sbatch").stdout
    os.chown(settings, 0, 0)
    assert "port-fixed" not in doctor(tmp_path / "mine", "train.sbatch").stdout


def test_an_ignored_fault_that_is_not_there_is_told(tmp_path: Path) -> None:
    comment = "# trainjob: ignore=no-srun, port-fixt\n"
    (tmp_path / "train.sbatch").write_text(FIXABLE.replace("#SBATCH --nodes=1\n", f"{comment}#SBATCH --nodes=1\n"))
    report = doctor(tmp_path, "train.sbatch").stdout
    assert "train.sbatch:2:20: note: ignore-unused: no-srun is not found here" in report
    assert "ignore-unused: port-fixt is no code of doctor" in report


def test_bash_says_whether_it_can_read_a_file(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(FIXABLE.replace("set -eo pipefail", 'set -eo pipefail\nexport NAME="a'))
    ended = doctor(tmp_path, "--select", "not-bash", "train.sbatch")
    assert (ended.returncode, "train.sbatch:8:1: error: not-bash: unexpected EOF" in ended.stdout) == (1, True)
    inner = "text=$(cat <<EOF\nEOFINNER\nEOF\n)\n"
    (tmp_path / "train.sbatch").write_text(FIXABLE.replace("set -eo pipefail\n", f"set -eo pipefail\n{inner}"))
    assert doctor(tmp_path, "--select", "not-bash", "train.sbatch").returncode == 0


def test_a_here_document_whose_end_is_indented_takes_in_the_rest() -> None:
    fault = syntax_fault(b"cat > a <<EOF\n  EOF\npython train.py\n")
    assert fault is not None
    assert fault.line == 2
    assert syntax_fault(b"cat > a <<EOF\nEOF\npython train.py\n") is None


@pytest.mark.parametrize("pipe", ["", " | tee log.$SLURM_JOB_ID"])
def test_a_bare_wait_hears_of_each_that_was_started(tmp_path: Path, pipe: str) -> None:
    each = "".join(f"bash train-{number}.sh{pipe} &\n" for number in range(3))
    with_monitor = f"#!/bin/bash\n#SBATCH --gres=gpu:1\nnvidia-smi --loop=9 &\n{each}wait\n"
    for name, text in (("job", with_monitor.replace("nvidia-smi --loop=9 &\n", "")), ("with-monitor", with_monitor)):
        (tmp_path / name).write_text(text)
        doctor(tmp_path, "--unsafe-fixes", "--fix", name)
    assert "\nwait\n" in (tmp_path / "with-monitor").read_text()  # for how long is up to its author
    for number in range(3):
        (tmp_path / f"train-{number}.sh").write_text(f"exit {number % 2 * 7}\n")
    ran(["bash", "job"], folder=tmp_path, code=7)


def test_a_test_that_bash_can_not_read_is_a_fault_though_bash_ends_with_0() -> None:
    fault = syntax_fault(b'x=1\nif [[ $x == *" "*]]; then echo; fi\n')
    assert fault is not None
    assert fault.line == 2
