"""The container of a batch file's ranks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from batchfiles.adoption.account import IN_CONTAINER, Account, Where
from batchfiles.adoption.asked import Keys
from batchfiles.adoption.decisions import can_be_stated
from batchfiles.bash.expansion import is_pattern
from batchfiles.bash.values import HOLE, Value
from batchfiles.slurm.launches import LaunchedProgram
from batchfiles.slurm.layers import CONTAINER_FLAGS, takes_next_word
from batchfiles.slurm.script import BatchScript

_RUNTIMES = {"singularity": "apptainer", "podman-hpc": "podman"}
_MOUNTS = ("-B", "--bind", "-v", "--volume", "-V", "--mount")
# What a job decides: where ranks start, as whom, and by which program.
_DECIDED = (
    *("--pwd", "--cwd", "--workdir", "-w", "--user", "-u", "--entrypoint", "--name", "--hostname"),
    "--container-workdir",
)
_OF_FOLDERS = ("--overlay", "-o", "--env-file", "--home", "-H", "--scratch")
# What the cluster file's runtime does by itself.
_GIVEN = ("--nv", "--rocm", "--rm", "--cleanenv", "--gpus", "--ipc", "--network", "--net", "-it")


def read_container(script: BatchScript, launch: LaunchedProgram, keys: Keys, account: Account, base: str) -> None:
    """Fill in the container of the ranks, if there is one; `base` is the folder of relative paths."""
    found = _stated(script, launch, base)
    if found is None:
        return
    runtime, image, mounts, others = found
    layer = launch.layer("container")
    if layer is not None:  # each pair of them has an entry, or is an option that the cluster file's runtime has
        account.set_apart(IN_CONTAINER, layer.words[: len(layer.words) - layer.left])
    program = layer.words[0].text.rpartition("/")[2] if layer is not None else runtime
    if program == "podman-hpc":
        what = "the job starts podman, which has no options of podman-hpc, such as --gpu"
        account.note(Where.LOST, launch.place, program, what)
    if runtime == "apptainer" and layer is not None and " run " in layer.own:
        what = "the job starts it by exec: what the image's runscript sets up, or starts, is left out"
        account.note(Where.LOST, launch.place, f"{program} run", what)
    around = script.header.line("container-image") if script.header.value("container-image") else 0
    if layer is None and around and any(one.line < launch.line for one in script.commands):
        what = "this file runs in the image, and a job's prologue outside of it: the lines above the training"
        account.note(Where.LOST, around, "--container-image, around the whole file", what)
    if runtime != "pyxis":
        others = _without_environment(others, launch, runtime, keys, account)
    if _is_open(image):
        what = "the container's image is known only when it runs"
        account.note(Where.LOST, launch.place, f"{runtime} {image}"[:60], what)
        for mount in mounts:
            account.note(Where.LOST, launch.place, mount, "a mount of that container")
        for words in others:
            account.note(Where.LOST, launch.place, " ".join(words), "an option of that container")
        return
    for mount in [mount for mount in mounts if _is_open(mount)]:
        mounts.remove(mount)
        account.note(Where.LOST, launch.place, mount, "this mount is known only when it runs")
    _fill(keys, account, launch, runtime, image, mounts, others)


_Stated = tuple[str, str, list[str], list[list[str]]]  # the runtime, the image, mounts, other options


def _stated(script: BatchScript, launch: LaunchedProgram, base: str) -> _Stated | None:
    """Return the runtime, the image, the mounts and the options that are left; None without a container."""
    layer = launch.layer("container")
    if layer is not None:
        words = [_in_folder(word.value, base) for word in layer.words[: len(layer.words) - layer.left]]
        runtime, named, mounts, others = _of_words(words, base)
        return runtime, named or script.header.value("image") or "", mounts, others
    options = (launch.srun.options if launch.srun else {}).items()
    stated = {one.name: one.value or "" for one in script.header.directives}
    stated |= {name: _in_folder(value, base) for name, value in options if value}
    if image := stated.get("container-image"):
        mounts = [mount for mount in stated.get("container-mounts", "").split(",") if mount]
        workdir = stated.get("container-workdir")
        return "pyxis", image, mounts, [[f"--container-workdir={workdir}"]] if workdir else []
    kind = next((kind for kind in ("environment", "image") if stated.get(kind)), None)
    return None if kind is None else ("ce" if kind == "environment" else "shifter", stated[kind], [], [])


def _in_folder(value: Value, base: str) -> str:
    """Return a word of a file that is submitted in the folder `base`, where some variables are known."""
    known = {"$PWD": base, "$SLURM_SUBMIT_DIR": base, "$HOME": "~", '"$HOME"': "~"}
    first, *pieces = value.text.split(HOLE)
    filled = (known.get(source, source or HOLE) + piece for source, piece in zip(value.sources, pieces, strict=True))
    return re.sub(r"(?<![^,])~(?=[:,]|$)", "~/", first + "".join(filled))


def _is_open(text: str) -> bool:
    return HOLE in text or re.search(r"[$`]", text) is not None


def _fill(
    keys: Keys,
    account: Account,
    launch: LaunchedProgram,
    runtime: str,
    image: str,
    mounts: list[str],
    others: list[list[str]],
) -> None:
    places: list[str] = []
    for mount in mounts:
        source, target, how = [*mount.split(":", 2), "", ""][:3]
        places.append(f"{source}:{target}" if target.startswith("/") and target != source else source)
        if how not in ("", "rw"):
            account.note(Where.LOST, launch.place, mount[:60], f"a cluster file's mounts have no options ({how})")
    options: list[str] = []
    for words in others:
        text = " ".join(words)
        name = words[0].partition("=")[0]
        if name in _DECIDED:
            account.note(Where.LOST, launch.place, text, "a job decides that")
        elif name in _GIVEN:
            account.note(Where.TRAINJOB, launch.place, text, "the cluster file's runtime does what a job needs of it")
        elif _is_open(text):
            account.note(Where.LOST, launch.place, text, "it is known only when it runs")
        else:
            options += words
            account.note(Where.CLUSTER, launch.place, text, "container: options")
    keys.cluster["container"] = {
        "runtime": runtime,
        "image": image,
        **({"mounts": places} if places else {}),
        **({"options": options} if options else {}),
    }
    account.note(Where.CLUSTER, launch.place, f"{runtime} {image}"[:60], "container")
    if is_pattern(image):
        what = "a job takes the image's name as it is: write the file that this pattern stands for"
        account.note(Where.LOST, launch.place, image, what)


_OF_ENV_ALONE = ("docker", "podman")


def _of_home(value: str) -> bool:
    return re.match(r"~(?:/|$)", value) is not None


def _without_environment(
    others: list[list[str]], launch: LaunchedProgram, runtime: str, keys: Keys, account: Account
) -> list[list[str]]:
    """Put variables that are set for the container into env, or a home into the prologue; return the other options."""
    left = []
    for words in others:
        name, equals, value = words[-1].removeprefix("--env=").partition("=")
        if words[0].partition("=")[0] not in ("--env", "-e"):
            left.append(words)
        elif not equals or _is_open(value) or not can_be_stated(name) or (_of_home(value) and runtime in _OF_ENV_ALONE):
            account.note(Where.LOST, launch.place, " ".join(words), "state it in env of the job")
        elif _of_home(value):
            keys.exports[name] = f'"$HOME"{shlex.quote(value[1:])}'
            account.note(Where.CLUSTER, launch.place, " ".join(words), "prologue")
        else:
            keys.of_job("env")[name] = value
            account.note(Where.JOB, launch.place, " ".join(words), f"env: {name}")
    return left


def _of_words(words: list[str], base: str) -> _Stated:
    """Return the runtime, the image, the mounts and the options that are left."""
    program = words[0].rpartition("/")[2]
    runtime = _RUNTIMES.get(program, program)
    image, mounts = "", []
    others: list[list[str]] = []
    for option_word, value in _pairs(words[1:], runtime):
        if option_word in _MOUNTS:
            mounts.extend(value.split(","))
        elif option_word == "--image":
            image = value
        elif option_word == "":
            image = "" if value in ("exec", "run", "shell") and not image else value
        else:
            is_relative = option_word in _OF_FOLDERS and re.match(r"[\w.]", value)
            stated = os.path.normpath(f"{base}/{value}") if is_relative else value
            others.append([option_word, stated] if stated else [option_word])
    # A job runs in another folder. Docker's -v NAME:TARGET is a volume, and no folder.
    relative = re.compile(r"[\w.]" if runtime == "apptainer" else r"\.\.?(?:[/:]|$)")
    mounts = [
        ":".join((os.path.normpath(f"{base}/{source}"), *rest)) if relative.match(mount) else mount
        for mount in mounts
        for source, *rest in [mount.split(":")]
    ]
    if re.fullmatch(r"(?!/)[\w./-]+\.(?:sif|simg|img|sqsh)", image):
        image = os.path.normpath(f"{base}/{image}")
    return runtime, image, mounts, others


def _pairs(words: list[str], runtime: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if word == "--":
            continue
        word = CONTAINER_FLAGS.get(runtime, {}).get(word, word)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            yield "", word
        elif equals:
            yield name, value
        elif at >= len(words) or not takes_next_word(runtime, word):
            yield word, ""
        else:
            yield word, words[at]
            at += 1
