"""A command split into layers: srun, container, launcher, and the program at its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, Value
from trainjob.contract.programs.helpers import CONTAINERS, RUNNERS, SHELLS, helps
from trainjob.contract.programs.launchers import FIRST_WORDS, FLAGS, MPI_STARTERS
from trainjob.contract.programs.slurm_options import read_options

# Programs that run another one, and their options that take the next word.
_WRAPPERS_WITH_VALUES = {
    **dict.fromkeys(("numactl", "nohup", "stdbuf", "taskset", "command", "catchsegv", "setsid", "unbuffer"), r"$^"),
    **dict.fromkeys(
        (*RUNNERS, "nsys", "ncu"),
        r"-n|-p|-o|-t|-e|--name|--prefix|--output|--trace|--with|--extra|--python|--project|"
        r"--directory|--group|-f|--set",
    ),
    "python-launcher": r"$^",
    "nice": r"-n|--adjustment",
    "timeout": r"-s|-k|--signal|--kill-after",
    "env": r"-u|-C|-S",
    "time": r"-o|-f",
    "exec": r"-a",
    "ionice": r"-c|-n",
    "xvfb-run": r"-n|-s",
    "sudo": r"-u",
    "xargs": r"-n|-I|-P|-L|-d|-a|-s|-E|--max-args|--max-procs|--max-lines|--delimiter|--arg-file",
    "parallel": r"-j|-N|-n|-a|-S|-I|--jobs|--joblog|--delay|--results|--arg-file|--colsep|--retries|--timeout|--halt",
    "script": r"$^",
    "flock": r"-w|--timeout|--wait|-E",
}
_WHICH = re.compile(r"\"?(?:\$\(|`)\s*(?:which|command -v)\s+(\w+)\s*[)`]\"?")
_PYTHON = re.compile(r"(?:python[\d.]*|pypy3?|ipython3?)")


@dataclass
class Layer:
    """A program that starts the next one, with its options."""

    name: str
    options: dict[str, Value | None] = field(default_factory=dict)
    words: list[Word] = field(default_factory=list)
    left: int = 0  # the number of words behind it

    @property
    def program(self) -> str:
        """The name of its program, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def own(self) -> str:
        """Its own words: those before the next program."""
        return " ".join(word.text for word in self.words[: -self.left or None])


def taken_apart(command: ShellCommand) -> tuple[list[Layer], list[Word], dict[str, Value]]:
    """Return the layers of a command, the program at its end with its arguments, and what is set for it alone."""
    layers: list[Layer] = []
    words = list(command.words)
    settings = dict(command.settings)
    while words:
        if layers and not layers[-1].left:
            layers[-1].left = len(words)
        name = words[0].text.rpartition("/")[2]
        if re.fullmatch(r"[A-Za-z_]\w*=.*", words[0].text, re.DOTALL) and not words[0].quoted:
            key, _, text = words[0].text.partition("=")
            settings[key] = words[0].value.with_text(text)
            words = words[1:]
        elif name == "srun" or name in MPI_STARTERS:
            words = _starter(name, words, layers)
        elif name in CONTAINERS:
            words = _container(name, words, layers)
        elif name in FIRST_WORDS or re.fullmatch(r"\$\{?\w*TORCHRUN\w*\}?", words[0].source):
            words = _launcher(name, words[1:], layers)
            break
        elif _PYTHON.fullmatch(name) or re.fullmatch(r"\$\{?\w*PYTHON\w*\}?", words[0].source):
            words = _python(words, layers)
            break
        elif name in _WRAPPERS_WITH_VALUES and len(words) > 1:
            words = _wrapped(name, words, layers)
        elif len(words) > 1 and _is_undecided(words[0]) and _starts_another(words[1]):
            words = words[1:]  # a profiler perhaps, or nothing: only the run knows
        elif at := _behind_wrapper(words):
            layers.append(Layer("wrapper", words=words))
            words = words[at:]
        else:
            break
    return layers, words, settings


def _is_undecided(word: Word) -> bool:
    """Return whether a word is a variable that the file sets, to what only the run knows."""
    is_set = not any(origin.startswith("unset ") for origin in word.value.origins)
    return word.text == HOLE and is_set and bool(word.value.sources[0])


def _starts_another(word: Word) -> bool:
    name = word.text.rpartition("/")[2]
    return name in FIRST_WORDS or name in CONTAINERS or _PYTHON.fullmatch(name) is not None


def _behind_wrapper(words: Sequence[Word]) -> int:
    """Return where the program is that a site's own wrapper starts (`site_wrapper exec python`); 0 if it is none."""
    if helps(words[0].text.rpartition("/")[2]) or [word.text for word in words[1:2]] not in (["exec"], ["run"]):
        return 0
    return next((at for at, word in enumerate(words) if at > 1 and starts_program(word)), 0)


def starts_program(word: Word) -> bool:
    """Return whether a word is a program that starts others: a launcher, a container, Python or a shell."""
    return _starts_another(word) or word.text.rpartition("/")[2] in SHELLS


def _starter(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layer = Layer("srun" if name == "srun" else "mpirun", words=words)
    layers.append(layer)
    at = 1
    if name == "srun":
        for option_name, value, _, following in srun_options(words):
            layer.options[option_name], at = value, following
        return words[at + ([word.text for word in words[at : at + 1]] == ["--"]) :]
    while at < len(words) and words[at].text.startswith("-"):
        key = words[at].text.lstrip("-").replace("-", "_")
        takes = 2 if key in ("mca", "gmca", "x_env") else 0 if key in FLAGS or "=" in key else 1
        layer.options[key.partition("=")[0]] = words[at + 1].value if takes and at + 1 < len(words) else Value("")
        at += 1 + takes
    return words[at:]


def srun_options(words: Sequence[Word]) -> Iterator[tuple[str, Value, Sequence[Word], int]]:
    """Yield the name and value of each option behind the word srun, its words, and the number of the word after it."""
    before = 1
    for name, text, following in read_options([word.text for word in words[1:]], "srun"):
        at = 1 + following
        own = words[before:at] or words[at - 1 : at]  # one word may hold several: -uN2
        stated = next((one.value for one in reversed(own) if text and one.text.endswith(text)), Value())
        yield name, stated.with_text(text or ""), own, at
        before = at


_CONTAINER_VALUES = re.compile(
    r"-B|--bind|--env|--env-file|-e|--pwd|--workdir|-w|-v|--volume|--mount|--home|-H|"
    r"--overlay|--nvccli-x|--image|-V|--module|-W|--hostname|"
    r"--scratch|-S|--gpus|--name|--network|--ipc|--shm-size|--user|-u|--entrypoint|--device|"
    r"--ulimit|-m|--root|--rw-x|-c|--security|-b|--cd|--set-env|-p|--cap-add|--cap-drop|--group-add|--userns|--add-host|"
    r"--annotation|--label|-l|--memory|--cpus|--cpuset-cpus|--security-opt|--tmpfs|--pid|--uts|--cgroupns|--runtime|"
    r"--platform|--pull|--restart|--log-driver|--log-opt|--stop-timeout|--publish|--dns|--cidfile|--pidfile|"
    r"-o|--cwd|--no-mount|--fusemount|--app|--apply-cgroups|--add-caps|--drop-caps|--network-args"
)
# One program's option that takes a word is another's flag: docker's -e and -u, and Apptainer's.
_APPTAINER_FLAGS = {
    "-e": "--cleanenv",
    "-c": "--contain",
    "-p": "--pid",
    "-u": "--userns",
    "-w": "--writable",
    **{name: name for name in ("--ipc", "--pid", "--userns", "--uts")},
}
CONTAINER_FLAGS: dict[str, dict[str, str]] = {
    "apptainer": _APPTAINER_FLAGS,
    "singularity": _APPTAINER_FLAGS,
    "enroot": {"-w": "--rw", "--root": "--root"},
    "ch-run": {"-v": "--verbose", "-w": "--write"},
    "shifter": {"-v": "--verbose"},
}


def takes_next_word(program: str, option: str) -> bool:
    """Return whether a container program's option takes the word behind it as its value."""
    return _CONTAINER_VALUES.fullmatch(option) is not None and option not in CONTAINER_FLAGS.get(program, {})


def _container(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layer = Layer("container", words=words)
    at = 1
    verb = name in ("shifter", "ch-run")
    image = name == "shifter"  # by --image, or by sbatch's
    while at < len(words):
        text = words[at].text
        if text.startswith("-") and (not image or name == "shifter"):  # behind the image, they are the program's
            at += 2 if takes_next_word(name, text) else 1
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
    layers.append(layer)
    return []


def _launcher(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    kind, needs = FIRST_WORDS.get(name, ("torchrun", ()))
    if needs:
        if not words or words[0].text not in needs:
            return words
        words = words[1:]
    layer = Layer(kind, words=words)
    layers.append(layer)
    at = 0
    for key, value, following in launcher_options(words):
        layer.options[key] = value
        at = following
    return words[at:]


def launcher_options(words: Sequence[Word]) -> Iterator[tuple[str, Value, int]]:
    """Yield the name and value of each leading option of a launcher, and the number of the word after it."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name_of, equals, text = words[at].text.lstrip("-").partition("=")
        key = name_of.replace("-", "_")
        word, at = words[at], at + 1
        if equals:
            yield key, word.value.with_text(text), at
        elif key in FLAGS or at >= len(words) or (words[at].text.startswith("--") and len(words[at].text) > 2):
            yield key, Value(""), at
        else:
            at += 1
            yield key, words[at - 1].value, at


def _python(words: list[Word], layers: list[Layer]) -> list[Word]:
    at = 1
    python = Layer("python", words=words)
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        text = words[at].text
        at += 1
        if text in ("-m", "-um") and at < len(words):
            if words[at].text in FIRST_WORDS:
                if words[at].text == "torch.distributed.launch":
                    layers.append(Layer("old-launcher"))
                return _launcher(words[at].text, words[at + 1 :], layers)
            break
        if text in ("-c", "-uc"):
            python.options["c"] = Value("")
            break
        if text in ("-X", "-W"):
            at += 1
        if text in ("--version", "-V", "-VV"):
            at -= 1
            break
    found = _WHICH.fullmatch(words[at].source) if at < len(words) else None
    if found is not None and found[1] in FIRST_WORDS:  # python $(which torchrun)
        return _launcher(found[1], words[at + 1 :], layers)
    layers.append(python)
    return words[at:]


def _wrapped(name: str, words: list[Word], layers: list[Layer]) -> list[Word]:
    layers.append(Layer(name, words=words))
    if name in RUNNERS and words[1].text != "run":
        return []
    at = 2 if name in RUNNERS or name == "nsys" else 1
    while at < len(words) and (
        words[at].text.startswith("-") or (name == "numactl" and re.fullmatch(r"[\d,-]+", words[at].text))
    ):
        if name == "uv" and words[at].text == "-m":
            return _python(words[at - 1 :], layers)
        at += 2 if re.fullmatch(_WRAPPERS_WITH_VALUES[name], words[at].text) else 1
    if name in ("timeout", "taskset", "flock") and at < len(words):
        at += 1
    return words[at:]
