"""The programs that a batch file starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, Value, number
from batchfiles.slurm.layers import Layer, taken_apart
from trainjob.contract.programs import launchers
from trainjob.contract.programs.helpers import SHELLS, helps

# Programs of their own that train: nnUNetv2_train, fairseq-train, llamafactory-cli train.
_TRAINS = re.compile(r"(?i)(?:[\w.-]*[-_])?(?:pre-?|re)?(?:train|fine-?tune|sft)(?:er|ing)?(?:[-_]\w+)?|fit")


_INTERPRETERS = ("Rscript", "julia")
_EVALUATES = re.compile(r"-[eEv]|--(?:eval|print|version|help)\b")
# What a rank's shell ends with may be a script that it sources.
_SOURCES_LAST = re.compile(r"(?:^|[;&|\s])(?:source|\.)\s+[^\s;&|]+\.(?:sh|bash)\b[^;&|]*$")
# Programs beside the training: what prepares it, and what looks at its results.
_BESIDE = re.compile(
    r"(?i)(?:.*[/._-])?(?:prepare|edit|clean|split|(?:config|configure|create|make|build|install)_?(?:\w+_)?(?:env|venv|environment)|pre_?process|pre_?flight|download|convert|tokenize|eval|evaluate|validate|test|infer|inference|predict|"
    r"plot|visuali[sz]e|sample|generate|export|merge|setup|check|upload|summari[sz]e|submit|report|monitor|telemetry)(?:[._-].*|\b.*)?"
)
_ASKS = re.compile(r"(?i)check|test|verif|valid|probe|exist|ready|health|wait|preflight|sanity|ping")


@dataclass
class LaunchedProgram:
    """One program that a command starts, with the words before it."""

    command: ShellCommand
    layers: list[Layer]
    program: list[Word]  # the program and its arguments; none where the line ends before it
    settings: dict[str, Value]
    outer: LaunchedProgram | None = None  # of a command inside a shell that was started: what started this shell

    def layer(self, *names: str) -> Layer | None:
        """Return the outermost of these layers, that of the starting command included."""
        found = self.outer.layer(*names) if self.outer else None
        return found or next((layer for layer in self.layers if layer.name in names), None)

    @property
    def srun(self) -> Layer | None:
        """The srun that starts it."""
        return self.layer("srun")

    @property
    def outermost(self) -> LaunchedProgram:
        """What the batch shell itself starts: this, or what started the shells around it."""
        return self if self.outer is None else self.outer.outermost

    @property
    def step(self) -> LaunchedProgram:
        """What has srun among its own words: this, or what started a shell around it; the outermost if none has."""
        has_srun = any(layer.name == "srun" for layer in self.layers)
        return self if has_srun or self.outer is None else self.outer.step

    @property
    def launcher(self) -> Layer | None:
        """The launcher that starts one process a GPU."""
        return next((layer for layer in reversed(self.layers) if layer.name in launchers.NAMES), None)

    @property
    def launcher_name(self) -> str:
        """The name of its launcher; empty if it has none."""
        return self.launcher.name if self.launcher else ""

    @property
    def options(self) -> dict[str, Value | None]:
        """The options of its launcher."""
        return self.launcher.options if self.launcher else {}

    def environment(self, name: str) -> Value | None:
        """Return the value of a variable that it gets, if the file sets it."""
        return self.settings.get(name, self.command.variables.values.get(name))

    @property
    def has_unknown_options(self) -> bool:
        """True if words known only at run time are where the launcher's options end: $ARGS of a sourced file."""
        return bool(self.program) and self.program[0].text.strip(HOLE) == ""

    @property
    def line(self) -> int:
        """The line in its file."""
        return self.command.line

    @property
    def place(self) -> int:
        """The line of the batch file that leads to it."""
        return self.command.place or self.line

    @property
    def source(self) -> str:
        """The file, where it is not the batch file itself."""
        return self.command.source

    @property
    def is_python(self) -> bool:
        """True if it is a Python program."""
        return any(layer.name == "python" for layer in self.layers)

    @property
    def trains(self) -> bool:
        """True if it may be the job's own work, and not a helper."""
        if self.launcher is not None:
            return True
        if "substitution" in self.command.within or ("condition" in self.command.within and self.is_question):
            return False
        name = self.program[0].text.rpartition("/")[2] if self.program else ""
        if self.is_python:
            return bool(name) and not _asks_python(self)
        if name in _INTERPRETERS and self.program[1:]:
            before = takewhile(lambda word: not re.search(r"\.(?:[rR]|jl)$", word.text), self.program[1:])
            return not any(_EVALUATES.match(word.text) for word in before)
        if name == "wandb" and [word.text for word in self.program[1:2]] == ["agent"]:
            return True
        if self.srun is not None and name in SHELLS and _SOURCES_LAST.search(self.program[-1].text):
            return "-c" in (word.text for word in self.program[1:-1])
        if not name or helps(name) or self.command.is_call:
            return False
        words = (name, *(word.text for word in self.program[1:2]))
        return self.srun is not None or any(_TRAINS.fullmatch(word) for word in words)

    @property
    def name(self) -> str:
        """The name of its program, without its folder."""
        return self.program[0].text.rpartition("/")[2] if self.program else ""

    @property
    def is_script(self) -> bool:
        """True if a shell is given a script, or a text, or an image is run: what that starts is not here."""
        return (self.name in SHELLS and bool(self.program[1:])) or self.runs_image

    @property
    def runs_image(self) -> bool:
        """True if an image's own program is started, with nothing but options behind the image."""
        container, first = self.layer("container"), self.program[:1]
        return container is not None and " run " in container.own and all(one.text.startswith("-") for one in first)

    @property
    def is_beside(self) -> bool:
        """True if its program prepares a training, or looks at its results."""
        own = self.program[1:] if self.name in SHELLS and self.program[1:] else self.program
        program = own[0].text if own else ""
        return bool(_BESIDE.fullmatch(program)) and "train" not in program.rpartition("/")[2]

    @property
    def is_question(self) -> bool:
        """True if a condition may run it only to learn something."""
        return _ASKS.search(self.name) is not None or not (self.is_python or self.srun is not None)


def _asks_python(launch: LaunchedProgram) -> bool:
    """Return whether Python is only asked for a version or a figure, or manages packages."""
    python = next(layer for layer in launch.layers if layer.name == "python")
    if "c" in python.options:
        return "\n" not in launch.program[0].text.strip() and "train" not in launch.program[0].text
    if launch.program[0].text == "-" or launch.program[0].text.startswith("/dev/"):  # a few lines behind it
        return True
    return launch.program[0].text in (
        "pip",
        "venv",
        "ensurepip",
        "json.tool",
        "--version",
        "-V",
        "ipykernel",
        "http.server",
    )


def option(launch_or_layer: Layer | None, *names: str) -> Value | None:
    """Return the value of the first of `names` that a layer has."""
    if launch_or_layer is None:
        return None
    return next((value for name in names if (value := launch_or_layer.options.get(name)) is not None), None)


def number_of(layer: Layer | None, *names: str) -> int | None:
    """Return the figure of an option, if it is known."""
    value = option(layer, *names)
    return number(value.text.strip()) if value is not None and value.known else None


def launches(commands: Sequence[ShellCommand]) -> Iterator[LaunchedProgram]:
    """Yield what each command starts; what a shell inside it starts follows the command."""
    shells: list[LaunchedProgram] = []
    for command in commands:
        while shells and not _is_inside(command, shells[-1].command):
            shells.pop()
        launch = LaunchedProgram(command, *taken_apart(command), shells[-1] if shells else None)
        if launch.layers or launch.program:
            yield launch
        if _starts_shell(launch):
            shells.append(launch)


def _is_inside(command: ShellCommand, outer: ShellCommand) -> bool:
    return len(command.within) > len(outer.within) and command.within[: len(outer.within) + 1] == (
        *outer.within,
        "called",
    )


def _starts_shell(launch: LaunchedProgram) -> bool:
    name = launch.program[0].text if launch.program else ""
    is_script = name.endswith((".sh", ".bash", ".slurm", ".sbatch"))
    return is_script or re.search(r"\s", name) is not None or shell_among(launch.program) < len(launch.program)


def shell_among(words: Sequence[Word]) -> int:
    """Return the number of words before the shell that a command line starts; of all, if it starts none."""
    names = (word.text.rpartition("/")[2] for word in words)
    return next((at for at, name in enumerate(names) if name in SHELLS), len(words))
