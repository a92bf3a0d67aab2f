"""What a batch file starts: each command taken apart into srun, container, launcher and program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainjob.scripts.expansion import Word
from trainjob.scripts.options import SRUN_SHORT, number, slurm_options
from trainjob.scripts.shell import Command
from trainjob.scripts.values import Value

LAUNCHERS = {
    "torchrun": "torchrun", "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "torchrun_xla": "torchrun",
    "accelerate": "accelerate", "accelerate-launch": "accelerate", "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed": "deepspeed", "deepspeed.launcher.runner": "deepspeed", "composer": "composer", "composer.cli.launcher": "composer",
    "tune": "tune", "horovodrun": "mpi", "mpirun": "mpi", "mpiexec": "mpi", "colossalai": "colossalai", "fabric": "fabric",
}  # fmt: skip
ONCE_A_NODE = ("torchrun", "accelerate", "deepspeed", "composer", "tune", "colossalai", "fabric")
_FLAGS = frozenset(
    "standalone no_python multi_gpu use_deepspeed use_fsdp cpu debug module m run_path use_env no_ssh save_pid autotuning dynamo_use_fullgraph "
    "dynamo_use_dynamic tpu mps quiet verbose v same_network use_megatron_lm use_mps_device oversubscribe allow_run_as_root".split()
)
_WRAPPERS_WITH_VALUES = {
    "numactl": r"$^", "nice": r"-n|--adjustment", "timeout": r"-s|-k|--signal|--kill-after", "env": r"-u|-C|-S",
    "time": r"-o|-f", "nohup": r"$^", "stdbuf": r"$^", "exec": r"-a", "taskset": r"$^", "ionice": r"-c|-n", "nsys": "", "ncu": "",
    "uv": "", "mamba": "", "conda": "", "micromamba": "", "poetry": "", "pixi": "", "xvfb-run": r"-n|-s", "command": r"$^",
    "catchsegv": r"$^", "python-launcher": r"$^", "sudo": r"-u", "setsid": r"$^", "unbuffer": r"$^", "hatch": "", "pipenv": "", "pdm": "", "rye": "",
}  # fmt: skip
_RUNS = {"uv", "mamba", "conda", "micromamba", "poetry", "pixi", "hatch", "pipenv", "pdm", "rye"}
_PYTHON = re.compile(r"(?:python[\d.]*|pypy3?|ipython3?)")
_HELPERS = re.compile(
    r"hostname|nvidia-smi|rocm-smi|amd-smi|echo|printf|mkdir|rm|rmdir|cp|mv|cat|ls|env|printenv|sleep|true|date|test|\[|touch|chmod|ln|tar|"
    r"unzip|unsquashfs|rsync|scp|df|du|free|lscpu|numactl|ulimit|which|pwd|whoami|uname|dcgmi|lspci|ip|ping|nc|ss|grep|sed|awk|head|tail|"
    r"wc|sort|tee|pip3?|git|wget|curl|scontrol|squeue|sacct|sbatch|scancel|sbcast|killall|pkill|kill|nslookup|dig|getent|host|stat|find|"
    r"enroot|seff|module|ml|conda|source|export|cd|set|trap|wait|ray|redis-server|export|exit|return|read|shift|local|:|dirname|basename|"
    r"realpath|readlink|unset|if|then|eval|exec|bash|sh|singularity|apptainer|shifter|docker|podman|ibstat|nvcc|gcc|make|cmake|jq|"
    r"clear|ibv_devinfo|huggingface-cli|hf|wandb|aws|gsutil|gcloud|rclone|md5sum|uv|seq|comm|shuf|tr|cut|xargs|\.|alias|type|time|"
    r"command|hash|getopts|let|declare|typeset|readarray|mapfile|umask|pgrep|ps|top|watch|lsof|nproc|id|groups|sinfo|sstat|jobs|disown|"
    r"tensorboard|vllm|nsys|spack|start_\w+|bc|expr|false|break|continue|logger|mail|sendmail|install|tput|truncate|mktemp|yes|dmesg"
)


@dataclass
class Layer:
    """A program that starts the next one, with its options."""

    name: str
    options: dict[str, Value | None] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)


@dataclass
class Launch:
    """One program that a command starts, with what stands before it."""

    command: Command
    layers: list[Layer]
    program: list[Word]  # the program and its arguments; none where the line ends before it
    settings: dict[str, Value]
    outer: Launch | None = None  # of a command inside a shell that was started: what started this shell

    def layer(self, *names: str) -> Layer | None:
        """Return the outermost of these layers, that of the starting command included."""
        found = self.outer.layer(*names) if self.outer else None
        return found or next((layer for layer in self.layers if layer.name in names), None)

    @property
    def srun(self) -> Layer | None:
        """The srun that starts it."""
        return self.layer("srun")

    @property
    def launcher(self) -> Layer | None:
        """The launcher that starts one process a GPU."""
        return next((layer for layer in reversed(self.layers) if layer.name in ONCE_A_NODE), None)

    @property
    def line(self) -> int:
        """The line in its file."""
        return self.command.line

    @property
    def is_python(self) -> bool:
        """Whether it is a Python program."""
        return any(layer.name == "python" for layer in self.layers)

    @property
    def trains(self) -> bool:
        """Whether it may be the job's own work, and not a helper."""
        if self.launcher is not None:
            return True
        if "substitution" in self.command.within or "condition" in self.command.within:
            return False
        name = self.program[0].text.rpartition("/")[2] if self.program else ""
        if self.is_python:
            return bool(name) and not _asks_python(self)
        return self.srun is not None and bool(name) and not _HELPERS.fullmatch(name)


def _asks_python(launch: Launch) -> bool:
    """Whether Python is only asked for a version or a figure, or manages packages."""
    python = next(layer for layer in launch.layers if layer.name == "python")
    if "c" in python.options:
        return "\n" not in launch.program[0].text.strip() and "train" not in launch.program[0].text
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


def launches(commands: Sequence[Command]) -> Iterator[Launch]:
    """Yield what each command starts; what a shell inside it starts follows the command."""
    shells: list[Launch] = []
    for command in commands:
        while shells and not _is_inside(command, shells[-1].command):
            shells.pop()
        launch = taken_apart(command, shells[-1] if shells else None)
        if launch.layers or launch.program:
            yield launch
        if _starts_shell(launch):
            shells.append(launch)


def _is_inside(command: Command, outer: Command) -> bool:
    return len(command.within) > len(outer.within) and command.within[: len(outer.within) + 1] == (
        *outer.within,
        "called",
    )


def _starts_shell(launch: Launch) -> bool:
    name = launch.program[0].text if launch.program else ""
    return name.rpartition("/")[2] in ("bash", "sh", "zsh") or name.endswith((".sh", ".bash", ".slurm", ".sbatch"))


def taken_apart(command: Command, outer: Launch | None = None) -> Launch:
    """Return the layers of a command and the program at its end."""
    layers: list[Layer] = []
    words = list(command.words)
    settings = dict(command.settings)
    while words:
        name = words[0].text.rpartition("/")[2]
        if re.fullmatch(r"[A-Za-z_]\w*=.*", words[0].text, re.DOTALL) and not words[0].quoted:
            key, _, text = words[0].text.partition("=")
            settings[key] = words[0].value.with_text(text)
            words = words[1:]
        elif name in ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "horovodrun"):
            words = _starter(name, words, layers)
        elif name in ("apptainer", "singularity", "shifter", "docker", "podman", "podman-hpc", "enroot", "ch-run"):
            words = _container(name, words, layers)
        elif LAUNCHERS.get(name) or re.fullmatch(r"\$\{?\w*TORCHRUN\w*\}?", words[0].source):
            words = _launcher(LAUNCHERS.get(name, "torchrun"), name, words[1:], layers)
            break
        elif _PYTHON.fullmatch(name) or re.fullmatch(r"\$\{?\w*PYTHON\w*\}?", words[0].source):
            words = _python(words, layers)
            break
        elif name in _WRAPPERS_WITH_VALUES and len(words) > 1:
            words = _wrapped(name, words, layers)
        else:
            break
    return Launch(command, layers, words, settings, outer)


def _starter(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layer = Layer("srun" if name == "srun" else "mpirun", words=words)
    layers.append(layer)
    at = 1
    texts = [word.text for word in words[1:]]
    if name == "srun":
        for option_name, value, following in slurm_options(texts, SRUN_SHORT):
            word = words[following] if following < len(words) else words[-1]
            layer.options[option_name] = None if value is None else _origin_of(words[1 : following + 1], value, word)
            if value is None:
                layer.options[option_name] = Value("")
            at = 1 + following
        return words[at:]
    while at < len(words) and words[at].text.startswith("-"):
        key = words[at].text.lstrip("-").replace("-", "_")
        takes = 2 if key in ("mca", "gmca", "x_env") else 0 if key in _FLAGS or "=" in key else 1
        layer.options[key.partition("=")[0]] = words[at + 1].value if takes and at + 1 < len(words) else Value("")
        at += 1 + takes
    return words[at:]


def _origin_of(words: Sequence[Word], value: str, default: Word) -> Value:
    for word in reversed(words):
        if word.text.endswith(value):
            return word.value.with_text(value)
    return default.value.with_text(value)


_CONTAINER_VALUES = re.compile(
    r"-B|--bind|--env|--env-file|-e|--pwd|--workdir|-w|-v|--volume|--mount|--home|-H|--overlay|--nvccli-x|--image|-V|--module|-W|--hostname|"
    r"--scratch|-S|--gpus|--name|--network|--ipc|--shm-size|--user|-u|--entrypoint|--device|--ulimit|-m|--root|--rw-x|-c|--security|-b|--cd|--set-env|-p|--cap-add"
)


def _container(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layer = Layer("container", words=words)
    at = 1
    verb = name in ("shifter", "ch-run")
    image = name == "shifter" and any(word.text.startswith("--image") for word in words)
    while at < len(words):
        text = words[at].text
        if text.startswith("-"):
            at += 2 if _CONTAINER_VALUES.fullmatch(text) else 1
        elif not verb:
            if text not in ("exec", "run", "shell", "start"):
                break
            verb = True
            at += 1
        elif not image:
            image = True
            at += 1
        else:
            layers.append(layer)
            return words[at:]
        if at < len(words) and words[at - 1].text == "--":
            continue
    layers.append(layer)
    return [] if verb else words[:0]


def _launcher(kind: str, name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layer = Layer(kind, words=words)
    layers.append(layer)
    if name in ("accelerate", "tune", "colossalai", "fabric", "accelerate.commands.accelerate_cli"):
        if words and words[0].text in ("launch", "run"):
            words = words[1:]
        else:
            layers.pop()
            return words
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name_of, equals, text = words[at].text.lstrip("-").partition("=")
        key = name_of.replace("-", "_")
        if equals:
            layer.options[key] = words[at].value.with_text(text)
            at += 1
        elif (
            key in _FLAGS
            or at + 1 >= len(words)
            or (words[at + 1].text.startswith("--") and len(words[at + 1].text) > 2)
        ):
            layer.options[key] = Value("")
            at += 1
        else:
            layer.options[key] = words[at + 1].value
            at += 2
    return words[at:]


def _python(words: list[Word], layers: list[Layer]) -> list[Word]:
    at = 1
    python = Layer("python", words=words)
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        at += 1
        if text in ("-m", "-um") and at < len(words):
            kind = LAUNCHERS.get(words[at].text)
            if kind:
                if words[at].text == "torch.distributed.launch":
                    layers.append(Layer("old-launcher"))
                return _launcher(kind, words[at].text, words[at + 1 :], layers)
            break
        if text in ("-c", "-uc"):
            python.options["c"] = Value("")
            break
        if text in ("-X", "-W"):
            at += 1
        if text in ("--version", "-V", "-VV"):
            at -= 1
            break
    layers.append(python)
    program = words[at:]
    # pytorch_lightning and others are told to use a launcher's name as a module: python -m torch.distributed.run is above
    return program


def _wrapped(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    at = 1
    layers.append(Layer(name, words=words))
    if name in _RUNS and words[1].text != "run":
        return words[:0] if name not in ("conda", "uv") else words[1:1]
    takes_value = (
        _WRAPPERS_WITH_VALUES[name]
        or r"-n|-p|-o|-t|-e|--name|--prefix|--output|--trace|--with|--extra|--python|--project|--directory|--group|-f|--set"
    )
    at = 2 if name in _RUNS or name in ("nsys",) else 1
    while at < len(words) and (
        words[at].text.startswith("-") or (name == "numactl" and HAS_RANGE.fullmatch(words[at].text))
    ):
        at += 2 if re.fullmatch(takes_value, words[at].text) else 1
    if name in ("timeout", "taskset") and at < len(words):
        at += 1
    return words[at:]


HAS_RANGE = re.compile(r"[\d,-]+")
