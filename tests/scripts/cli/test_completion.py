"""Completion as shells ask for it: the words, and that a file's name never becomes a command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.local_runs import Here
from tests.support.programs import TRAINJOB, ran
from tests.support.services import need

# As bash calls the function of a completion, with the words that were typed so far.
PRESS_TAB = """
source <(trainjob completion bash)
shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_trainjob_completion trainjob "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

# TYPED stands on the command line as soon as there is one, and its end is completed.
SOURCED = "source <(trainjob completion zsh)"
SAVED = "fpath=($ZDOTDIR $fpath)"
ZSHRC = f"""
autoload -U compinit && compinit -u -D
{SOURCED}
zle-line-init() {{ BUFFER=$TYPED CURSOR=$#TYPED; zle complete-word; print -r -- $BUFFER > $ANSWER; exit; }}
zle -N zle-line-init
"""
IN_FISH = 'trainjob completion fish | source; complete -C "$TYPED" | string split -f 1 \\t'


def completed(here: Here, *typed: str) -> list[str]:
    ended = ran(
        ["bash", "-uc", PRESS_TAB, "bash", "-", *typed],
        folder=here.project,
        environ={**here.environ, "PATH": f"{Path(TRAINJOB).parent}:{here.environ['PATH']}"},
        timeout_s=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


@pytest.fixture
def runs(here: Here) -> Here:
    """Two runs of the index, a cluster file, a hostile one, and a task of the user's own."""
    index = here.folder / "data" / "trainjob" / "index"
    index.mkdir(parents=True)
    for run in ("k3xq-digits", "q4ab-digits"):
        (index / run).symlink_to(here.folder)
    here.cluster("mine", "")
    here.cluster("min$(touch${IFS}hostile)", "")
    (here.project / "own.py").write_text(
        "import torch_is_not_loaded\n"
        "class Base:\n    def __init__(self, depth=2, *, heads=4): ...\n"
        "class Mine(Base):\n    pass\n"
        "def made(size): ...\n"
    )
    return here


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["stat"], ["status"]),
        (["status", ""], ["last", "k3xq-digits", "q4ab-digits", "digits"]),
        (["cancel", "k"], ["k3xq-digits"]),
        (["submit", "--cluster", "mi"], ["mine"]),
        (["submit", "--set", ""], ["width=", "hidden=", "dropout=", "shift="]),
        (["submit", "--task", "cifar10-resnet50", "--set", "cl"], ["classes="]),
        (["submit", "--task", "own:Mine", "--set", ""], ["depth=", "heads="]),
        (["submit", "--task", "own:made", "--set", ""], ["size="]),
        (["submit", "--task", "nowhere:Mine", "--set", ""], []),
        (["plan", "--reduction", ""], ["sum", "mean"]),
        (["submit", "--task", "digits"], ["digits-cnn"]),
    ],
)
def test_bash_completes(runs: Here, typed: list[str], words: list[str]) -> None:
    assert completed(runs, "trainjob", *typed) == words
    assert not (runs.project / "hostile").exists()


def test_other_shells_get_the_same_words(runs: Here) -> None:
    for shell in ("zsh", "fish"):
        asked = {"_TYPER_COMPLETE_ARGS": "trainjob submit --cluster mi", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        shown = runs.run(environ={**asked, "_TRAINJOB_COMPLETE": f"complete_{shell}"}).stdout
        assert "mine" in shown
        assert "hostile" not in shown
        assert f"complete_{shell}" in runs.run("completion", shell).stdout
    assert "is not one of 'bash', 'zsh', 'fish'" in runs.run("completion", "tcsh", code=2).stderr


@pytest.mark.parametrize(
    ("typed", "completed_to"),
    [
        ("trainjob stat", "trainjob status"),
        ("trainjob cancel k", "trainjob cancel k3xq-digits"),
        ("trainjob submit --cluster mi", "trainjob submit --cluster mine"),
    ],
)
@pytest.mark.parametrize("shell", ["zsh", "zsh with a saved script", "fish"])
def test_a_real_shell_completes(runs: Here, shell: str, typed: str, completed_to: str) -> None:
    shell, _, is_saved = shell.partition(" ")
    program, folder = need(shell), runs.folder
    (folder / ".zshrc").write_text(SAVED + ZSHRC.replace(SOURCED, "") if is_saved else ZSHRC)
    (folder / "_trainjob").write_text(runs.run("completion", "zsh").stdout)
    environ = {**runs.environ, "PATH": f"{Path(TRAINJOB).parent}:{runs.environ['PATH']}", "TYPED": typed}
    if shell == "fish":
        command = [str(program), "--no-config", "-c", IN_FISH]
    else:
        # zsh completes only what is typed on a terminal.
        command = ["script", "-qec", shlex.join([str(program), "-i"]), "/dev/null"]
    ended = ran(
        command,
        folder=runs.project,
        environ={**environ, "ZDOTDIR": str(folder), "ANSWER": str(folder / "answer"), "TERM": "xterm"},
        timeout_s=60,
    )
    words = (folder / "answer").read_text() if shell == "zsh" else f"{typed.rpartition(' ')[0]} {ended.stdout}"
    assert words.split() == completed_to.split(), ended
    assert not (runs.project / "hostile").exists()


def test_completing_loads_nothing_heavy(here: Here) -> None:
    asked = {"_TRAINJOB_COMPLETE": "complete_bash", "COMP_WORDS": "trainjob\nsubmit\n--set\n", "COMP_CWORD": "3"}
    program = "import sys\nfrom trainjob.cli.main import main\ntry:\n    main([])\nfinally:\n    print(*sys.modules)\n"
    ended = ran([sys.executable, "-c", program], environ={**here.environ, **asked}, timeout_s=60)
    *words, loaded = ended.stdout.splitlines()
    assert "width=" in words
    assert not {"torch", "numpy", "jinja2", "yaml", "ansible"} & set(loaded.split())
