"""What every test stands on: a user's folders of its own, no redirects, and services by name."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support import services
from tests.support.attack import Attack, counted, table
from tests.support.examples import register_profiles
from tests.support.local_runs import Here
from tests.support.recording_engines import Engines, on_path

_VENV_NAMES = ("FLOOR", "TORCH_2_0", "HOROVOD", "TRACKERS", "RAY", "LAUNCHERS", "FRAMEWORKS")
_VENVS = tuple(f"TRAINJOB_{name}_VENV" for name in _VENV_NAMES)
_FOLDER = Path(__file__).parent
_KEPT = ("TRAINJOB_TEST_REQUIRE", *_VENVS)

# The tests of these folders wait more than they compute. Those of all others but unit and scripts keep a core busy.
_WAITING = {"backends", "batchfiles", "services"}
# The files that take longest, of each kind.
_LONGEST = (
    "services/ssh/test_same_problems.py",
    "services/ansible/test_failures.py",
    "services/slurm/test_requeue.py",
    "services/slurm/test_site.py",
    "services/ansible/test_site.py",
    "services/slurm/test_endings.py",
    "services/slurm/test_once_and_retry.py",
    "backends/test_slurm.py",
    "services/ssh/test_hosts.py",
    "services/slurm/test_by_hand.py",
    "services/slurm/test_arrays.py",
    "services/docker/test_local.py",
    "backends/test_hosts.py",
    "services/slurm/test_trains.py",
    "services/horovod/test_runs.py",
    "standins/gpu/test_programs.py",
    "training/verify/test_script_resume.py",
    "training/simulation/test_histories.py",
    "standins/gpu/test_collectives.py",
    "training/train/test_ranks.py",
    "training/local/test_counting.py",
    "training/verify/test_ipus.py",
    "training/local/test_asked_to_stop.py",
    "standins/gpu/test_operators.py",
    "training/verify/test_instances.py",
    "training/verify/test_diagnoses.py",
    "training/verify/test_bitwise.py",
    "training/train/test_resume.py",
    "training/verify/test_guarded.py",
    "training/rehearse/test_command.py",
)
# Folders of tests that call the command line many times, and start it by itself where its start matters.
_MANY_COMMANDS = {"attack", "check", "launch", "local", "scripts"}

# Tests that run in a shell's background, or under nohup, inherit these as ignored, and bash can't trap what was ignored
# when it began: the scripts that tests start take signals as those of a user's terminal do.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal is signal.SIGINT else signal.SIG_DFL)

register_profiles()
_USERS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="Write the golden files anew instead of comparing.")


def pytest_configure() -> None:
    """Refuse names of files that are gone, which would go to the end of the order unnoticed under their new ones."""
    if gone := [name for name in _LONGEST if not (_FOLDER / name).is_file()]:
        raise pytest.UsageError(f"tests/conftest.py: _LONGEST names {', '.join(gone)}, which is no file")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the names of its folders, and put the files in the order in which workers begin them."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        file = item.path.relative_to(_FOLDER)
        for name in file.parts[: 2 if file.parts[0] == "batchfiles" else 1]:
            item.add_marker(name)  # `-m "unit or scripts"`, and of those `-m batchfiles`
        files.setdefault(file, []).append(item)
    items[:] = [item for file in _in_turn(files) for item in files[file]]


def _in_turn(files: Iterable[Path]) -> list[Path]:
    """Return files that wait between those that compute, so that no core is idle; the longest of each kind first."""
    rank = {name: number for number, name in enumerate(_LONGEST)}
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for file in sorted(files, key=lambda file: rank.get(file.as_posix(), len(rank))):
        kinds[file.parts[0] in _WAITING].append(file)
    share = {file: (number + 0.5) / len(kind) for kind in kinds.values() for number, file in enumerate(kind)}
    return sorted(share, key=share.__getitem__)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the attack suite has tried, and what held."""
    reports = [report for among in ("passed", "failed") for report in terminalreporter.getreports(among)]
    lines = table(reports)
    if lines:
        terminalreporter.section("attacks")
        terminalreporter.write("\n".join([*lines, ""]))


@pytest.fixture
def write_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--write-golden"))


@pytest.fixture(scope="session")
def needs() -> Callable[[str], Path]:
    """Return what finds a service by name, or skips or fails the test: needs("python3.8")."""
    return services.need


@pytest.fixture(scope="session")
def needs_registry(needs: Callable[[str], Path]) -> None:
    needs("registry")


@pytest.fixture
def uv(needs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return uv, which is found on PATH, makes environments of this Python and asks no registry."""
    found = needs("uv")
    monkeypatch.setenv("PATH", f"{found.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_PYTHON", sys.executable)
    return found


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    """Return what opens the trials of one kind of attack; the summary prints how many held."""
    return counted(request)


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    """A user's machine in small; nothing that was started on it outlives the test."""
    folders = request.path.relative_to(_FOLDER).parts
    made = Here(tmp_path, forks=bool(_MANY_COMMANDS.intersection(folders)))
    yield made
    made.end_everything()


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Container engines that only write down how they were called."""
    return on_path(tmp_path / "engines", monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Hold for fixtures of a whole module, too: those of one test come later."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("TRAINJOB_", "GIT_", "PYTHON")) and name not in _KEPT:
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
        folder = tmp_path_factory.mktemp("session")
        _own_folders(patch, folder)
        yield folder


@pytest.fixture(autouse=True)
def _own_user_folders(_nothing_of_the_user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither made nor numbered by pytest, which would list the folders of thousands of tests for each of them.
    _own_folders(monkeypatch, _nothing_of_the_user / f"user-{next(_USERS)}")


def _own_folders(patch: pytest.MonkeyPatch, user: Path) -> None:
    patch.setenv("XDG_DATA_HOME", str(user / "data"))
    patch.setenv("XDG_CONFIG_HOME", str(user / "config"))
