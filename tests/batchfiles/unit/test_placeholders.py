"""What stands in for a training that is not here."""

from __future__ import annotations

from pathlib import Path

from batchfiles.rehearsal.placeholders import make_placeholders
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import BatchScript, script_of


def script(text: str) -> BatchScript:
    return script_of(Path("train.sbatch"), text.encode(), SiteFacts())


def test_a_training_that_is_here_needs_no_stage(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert (
        make_placeholders(script("python train.py\n"), ["python", "train.py"], tmp_path, tmp_path / "place", "python")
        is None
    )


def test_a_program_and_its_folders_are_made(tmp_path: Path) -> None:
    text = "source setup/env.sh\ncd /nowhere/project\n"
    text += "/nowhere/env/bin/python src/train.py\n"
    (tmp_path / "place").mkdir()
    words = ["/nowhere/env/bin/python", "src/train.py"]
    made = make_placeholders(script(f"#!/bin/bash\n{text}"), words, tmp_path, tmp_path / "place", "/usr/bin/python3")
    assert made is not None
    assert (made.folder / "src/train.py").is_file()
    assert (made.folder / "setup/env.sh").is_file()
    assert made.maps["/nowhere/project"] == made.folder
    assert "*.py) set -- /usr/bin/python3" in (made.maps["/nowhere/env/bin"] / "python").read_text()


def test_a_module_of_a_shell_is_found(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["bash", "-c", 'exec python -m training.main --out "$OUT"']
    made = make_placeholders(script("x\n"), words, tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert (made.folder / "training/main.py").is_file()


def test_what_wraps_the_program_starts_it_and_arguments_are_there(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["bash", "-c", "exec scripts/with_env.sh python train.py $OUT"]
    made = make_placeholders(
        script("x\n"), words, tmp_path, tmp_path / "place", "python", ["data/m.csv", "data/tokens", "7", "-x"]
    )
    assert made is not None
    assert (made.folder / "scripts/with_env.sh").read_text().endswith('*.py) set -- python "$@" ;; esac\nexec "$@"\n')
    assert (made.folder / "data/m.csv").is_file()
    assert (made.folder / "data/tokens").is_dir()
    assert not (made.folder / "7").exists()


def test_paths_without_which_the_file_ends_are_there(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    text = 'C=${C:-conf/a.yaml}\nD=data/set\nOUT=out/x.h5\nif [ ! -f "$C" ]; then exit 1; fi\n'
    text += "[[ -d ${D} ]] || exit 1\nif [ -f $OUT ]; then exit 1; fi\npython train.py\n"
    made = make_placeholders(script(text), ["python", "train.py"], tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert ((made.folder / "conf/a.yaml").is_file(), (made.folder / "data/set").is_dir()) == (True, True)
    assert not (made.folder / "out/x.h5").exists()


def test_a_script_that_starts_what_its_argument_names_starts_it(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["./tools/dist_train.sh", "configs/bev.py", "4"]
    made = make_placeholders(script("x\n"), words, tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert "*.py) set -- python" in (made.folder / "tools/dist_train.sh").read_text()
    assert (made.folder / "configs/bev.py").is_file()


def test_what_the_file_names_is_as_it_is_here(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "env.sh").write_text("export A=1\n")
    (tmp_path / "tokens").mkdir()
    text = "#!/bin/bash\nsource env.sh\npython train.py $1\n"
    made = make_placeholders(
        script(text), ["python", "train.py"], tmp_path, tmp_path / "place", "python", ["tokens", "fast"]
    )
    assert made is not None
    assert (made.folder / "env.sh").read_text() == "export A=1\n"
    assert (made.folder / "tokens").is_dir()
    assert not (made.folder / "fast").exists()


def test_a_program_of_its_own_that_is_not_here_waits(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["bash", "-c", "source env.sh\nexec nowhere_train 501 $FOLD"]
    made = make_placeholders(script("x\n"), words, tmp_path, tmp_path / "place", "/usr/bin/python3")
    assert made is not None
    assert (made.programs / "nowhere_train").read_text().startswith("#!/usr/bin/python3\nimport time")
    assert make_placeholders(script("x\n"), ["ls", "-l"], tmp_path, tmp_path / "place", "python") is None


def test_a_program_at_a_path_of_the_cluster_waits(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    for words in (["/nowhere/bin/solve", "3"], ["bash", "-c", "export -n i\nexec /nowhere/bin/solve $i"]):
        made = make_placeholders(script("x\n"), words, tmp_path, tmp_path / "place", "/usr/bin/python3")
        assert made is not None
        assert (made.maps["/nowhere/bin"] / "solve").read_text().startswith("#!/usr/bin/python3\n")
        made.folder.rmdir()
        made.programs.rmdir()


def test_folders_that_the_file_needs_are_there(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    text = "#!/bin/bash\n#SBATCH --chdir=/nowhere/project\npython train.py > results/$SLURM_JOB_ID.txt\n"
    made = make_placeholders(script(text), ["python", "train.py"], tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert (made.maps["/nowhere/project"], (made.folder / "results").is_dir()) == (made.folder, True)
    made.programs.rmdir()
    made.folder.rename(tmp_path / "other")
    of_shell = make_placeholders(script(text), ["sh", "tools/run.sh"], tmp_path, tmp_path / "place", "python")
    assert of_shell is not None
    assert of_shell.maps == {"/nowhere/project": of_shell.folder}


def test_an_interpreter_of_the_cluster_in_a_shell_starts_the_one_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["bash", "-c", "export A=1 && exec \\\n  /nowhere/venv/bin/python -m torch.distributed.run train.py"]
    made = make_placeholders(script("x\n"), words, tmp_path, tmp_path / "place", "/usr/bin/python3")
    assert made is not None
    assert "/usr/bin/python3" in (made.maps["/nowhere/venv/bin"] / "python").read_text()


def test_nothing_takes_the_place_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    words = ["bash", "-c", 'exec python "$HOME"/train.py']
    made = make_placeholders(script("python ~/train.py\n"), words, tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert made.maps == {}


def test_a_project_below_the_home_is_there(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    text = "P=${P:-${HOME}/no-such-project}\ncd $P\ncd $UNKNOWN/x\npython train.py\n"
    made = make_placeholders(script(text), ["python", "train.py"], tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert made.maps == {str(Path.home() / "no-such-project"): made.folder}


def test_a_program_in_a_folder_without_its_interpreter_is_no_script_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    made = make_placeholders(script("x\n"), ["mine/train.py", "--x"], tmp_path, tmp_path / "place", "python")
    assert made is not None
    assert (made.folder / "mine/train.py").read_text().startswith("#!python\nimport time")


def test_what_climbs_out_of_the_project_is_made_nowhere(tmp_path: Path) -> None:
    place = tmp_path / "a" / "place"
    place.mkdir(parents=True)
    text = "#!/bin/bash\ncd b/../../../../moved\necho > d/../../../../written/log\n"
    make_placeholders(script(text), ["python", "../../../train.py"], place, place, "python")
    outside = [path for path in tmp_path.rglob("*") if place not in (path, *path.parents)]
    assert outside == [place.parent]
