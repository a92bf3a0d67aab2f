"""Faults around the training: in its environment, its files, its helpers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, islice

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, number
from batchfiles.rules.codes import Finding, found
from batchfiles.slurm.script import BatchScript
from batchfiles.slurm.servers import awaited_by_sleep
from trainjob.contract.programs.secret_names import holds_secret, is_placeholder, is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in

_GIVEN = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL")
_VISIBLE = "CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL"


def secrets(script: BatchScript) -> Iterator[Finding]:
    """Find keys and tokens; none is ever printed."""
    for one in script.assigned(r"\w+"):
        value = one.value.text
        may_be_one = is_secret_variable(one.name) and one.value.fixed and not is_placeholder(value)
        # A name or a number is one only if it is long and has digits.
        is_plain = (value.isidentifier() or value.isdigit()) and not re.fullmatch(r"(?=.*\d)[A-Za-z0-9_]{16,}", value)
        if (may_be_one and not is_plain) or holds_secret(value):
            yield found("secret-in-script", one, f"{one.name} has a value in the file")
    for command in script.commands:
        given = [word for word in command.words if not word.source.startswith("$")]
        prints = command.name in ("echo", "printf")
        text = " ".join("<>" if word.source.startswith("$") else word.text for word in command.words)
        if any(holds_secret(word.text) for word in given) or (not prints and secrets_in(text)):
            yield found("secret-in-script", command, f"{command.name} is given a key in the file")

    for at, comment in script.comments:
        text = comment.lstrip("# ")
        # A line of usage has a word in the place of a password.
        written = any(len(value) >= 12 and re.search(r"\d", value) for value in secrets_in(text))
        if written or any(holds_secret(word) for word in text.split()):
            yield Finding("secret-in-script", at, "a comment has a key")


def devices(script: BatchScript) -> Iterator[Finding]:
    """Find GPUs that are chosen by hand; several choices divide the job's own among programs."""
    chosen = [one for one in script.assigned(_VISIBLE) if not one.dead]
    if len({one.value.text for one in chosen}) > 1:
        return
    gpus = script.request.gpus_per_node
    for one in chosen:
        given = max((int(part) for part in one.value.text.split(",") if number(part) is not None), default=0)
        # Where Slurm confines a job, its own GPUs begin with 0.
        is_certain = one.value.fixed and not script.request.exclusive and "if" not in one.within
        if gpus and is_certain and given >= gpus:
            text = f"{one.name}={one.value.text}, and the job has {gpus} GPU{'s' * (gpus != 1)} a node"
            yield found("device-beyond-gpus", one, text, facts={"name": one.name})
            return
        if one.value.text and not one.value.comes_from(*_GIVEN):
            yield found("sets-visible-devices", one, f"{one.name}={one.value.text}", facts={"name": one.name})
            return


_SLOW = {
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_NET_GDR_DISABLE": "1",
    "NCCL_P2P_LEVEL": "LOC",
    "NCCL_NET_GDR_LEVEL": "LOC",
    "RCCL_P2P_DISABLE": "1",
}
_BETWEEN_NODES = ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_GDR_DISABLE", "NCCL_NET_GDR_LEVEL")
_DEBUG = {
    "NCCL_DEBUG": r"(?i)INFO|TRACE",
    "CUDA_LAUNCH_BLOCKING": "1",
    "TORCH_DISTRIBUTED_DEBUG": r"(?i)DETAIL|INFO",
    "NCCL_DEBUG_SUBSYS": ".+",
    "HIP_LAUNCH_BLOCKING": "1",
    "AMD_LOG_LEVEL": "[1-9]",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "LOGLEVEL": "DEBUG",
    "FI_LOG_LEVEL": "(?i)info|debug",
}


def collectives(script: BatchScript) -> Iterator[Finding]:
    """Find settings of NCCL and torch that slow training down or age badly."""
    reported: set[str] = set()
    for one in script.assigned(r"(?:NCCL|CUDA|TORCH|RCCL|HIP|AMD|FI|GLOO)_\w+|LOGLEVEL"):
        code = _about_setting(one.name, one.value.text)
        of_one = script.request.nodes == 1 and (one.name in _BETWEEN_NODES or script.request.gpus_per_node == 1)
        if code == "nccl-slow-path" and of_one:
            continue
        if code is not None and code not in reported:
            reported.add(code)
            yield found(code, one, f"{one.name}={one.value.text[:40]}", facts={"name": one.name})


def _about_setting(name: str, value: str) -> str | None:
    if _SLOW.get(name, "\n").lower() == value.lower():
        return "nccl-slow-path"
    if name in _DEBUG and re.fullmatch(_DEBUG[name], value):
        return "debug-left-on"
    if name in ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG"):
        return "nccl-old-variable"
    if name == "NCCL_TIMEOUT":
        return "setting-unread"
    # ^lo excludes interfaces, and pins none.
    pins = name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") and not value.startswith("^")
    return "nccl-interface-pinned" if pins else None


_INSTALLS = re.compile(
    r"(?:\S*/)?(?:(?:pip3?|conda|mamba|micromamba) (?:\S+ )*?(?:install|create|env create|env update)\b|"
    r"uv (?:sync|pip install|add|venv)\b|poetry install\b|"
    r"python[\d.]* (?:(?:-u )?-m pip (?:\S+ )*?install\b|-m venv\b|setup\.py (?:install|develop)))|"
    r"apt(?:-get)? (?:-\S+ )*install\b|npm (?:install|ci)\b|virtualenv (?:\S+ )*\S+|pipenv install|pixi install"
)


def _installing(script: BatchScript) -> Iterator[tuple[ShellCommand, str]]:
    """Yield the commands that install packages, and their words behind srun, a container and the like."""
    for launch in script.launches:
        inner = [layer.words[-layer.left :] for layer in launch.layers if layer.left]
        for words in (launch.command.words, *inner):
            text = " ".join(word.text for word in words).replace("\n", " ")
            if _INSTALLS.match(text):
                yield launch.command, text
                break


def installs(script: BatchScript) -> Iterator[Finding]:
    """Find packages that are installed while the job runs."""
    for command, text in islice(_installing(script), 1):
        yield found("installs-in-job", command, text[:60])


_ONE_RANK = re.compile(r"SLURM_(?:PROCID|LOCALID|NODEID)|\b(?:LOCAL_)?RANK\b")


def racing_installs(script: BatchScript) -> Iterator[Finding]:
    """Find installations that one rank makes in the step in which the others train."""
    for command, _ in _installing(script):
        step = command.within[: command.within.index("called") + 1] if "called" in command.within else None
        if step is None or not any(one.command.within[: len(step)] == step for one in script.training):
            continue
        line = script.line(command.line)
        in_list = {"after-and", "and"} & set(command.within) and _ONE_RANK.search(line)
        by_one = in_list or any(_ONE_RANK.search(one.text) for one in command.conditions)
        if by_one and not re.search(r"until|while|barrier|sleep|srun.*srun", line):
            yield found("install-races", command, f"{command.text[:50]}, by one rank alone")
            return


def kills(script: BatchScript) -> Iterator[Finding]:
    """Find programs that are ended by name, where other jobs may have them, too."""
    for command in script.named("pkill", "killall"):
        children = re.search(r"\s(?:-[A-Za-z]*[Pgst](?=\s|$)|--(?:parent|session|pgroup))", command.text)
        if not children and not script.request.exclusive and "called" not in command.within:
            yield found("kills-by-name", command, command.text[:60])
            return


def ray(script: BatchScript) -> Iterator[Finding]:
    """Find Ray clusters that are awaited by a sleep."""
    asks = re.compile(r"\bray (?:status|health-check)\b")
    if any("condition" in command.within and asks.search(command.text) for command in script.commands):
        return
    started = dropwhile(lambda one: not re.search(r"\bray start\b", one.text), script.commands)
    for command in islice((one for one in started if one.name == "sleep"), 1):
        yield found("ray-sleep-ready", command, command.text)


def servers(script: BatchScript) -> Iterator[Finding]:
    """Find servers that are awaited by a sleep."""
    for sleep in islice(awaited_by_sleep(script), 1):
        yield found("server-sleep-ready", sleep, sleep.text)


LOCAL_DISK = re.compile(
    r"/tmp(?:/|$)|/dev/shm(?:/|$)|/local(?:_?scratch|disk|data|ssd)?(?:/|$)|"
    r"/scratch[_-]?local(?:/|$)|/(?:mnt/)?(?:nvme|ssd)\w*(?:/|$)|/raid(?:/|$)|/l_?scratch(?:/|$)|/var/tmp(?:/|$)|"
    r"/mnt/(?:bb|local\w*|resource)(?:/|$)|/(?:l|node|job)_?tmp(?:/|$)"
)
_LOCAL_VARIABLES = (
    "SLURM_TMPDIR",
    "TMPDIR",
    "LOCAL_SCRATCH",
    "TMP",
    "LOCALSCRATCH",
    "JOBFS",
    "SLURM_JOB_TMP",
    "BB_JOB_DIR",
    "SLURM_SCRATCH",
    "SNIC_TMP",
    "L_SCRATCH",
    "LSCRATCH",
)
_FILLS = ("cp", "rsync", "tar", "unzip", "git", "unsquashfs", "wget", "curl", "scp", "mv", "virtualenv")


def local_disks(script: BatchScript) -> Iterator[Finding]:
    """Find files that the batch shell leaves on the first node's own disk, for ranks of others."""
    if not script.request.several_nodes or not any(launch.srun for launch in script.training):
        return
    reported: set[str] = set()
    for command in script.commands:
        makes_venv = re.match(r"python[\d.]* -m venv |uv venv ", command.text) is not None
        makes_folder = command.name == "mkdir" or (command.name == "mktemp" and "-d" in command.text)
        code = "temp-dir-on-first-node-only" if makes_folder else "workdir-on-first-node-only"
        if "called" in command.within or code in reported or not (makes_folder or makes_venv or command.name in _FILLS):
            continue
        words = command.words[1:] if command.name in ("mkdir", "tar", "unzip", "git") else command.words[-1:]
        target = next((word for word in words if _is_local(word)), None)
        if command.name == "mktemp" or target is not None:
            reported.add(code)
            text = command.text if target is None else f"{command.name} … {target.source[:50]}"
            yield found(code, command, text)


def _is_local(word: Word) -> bool:
    from_variable = word.text.startswith(HOLE) and word.value.comes_from(*_LOCAL_VARIABLES)
    return not word.source.startswith("-") and bool(LOCAL_DISK.match(word.text) or from_variable)


_LISTS_HOSTS = re.compile(r"scontrol show hostname|srun .*\bhostname\b")


def hostfiles(script: BatchScript) -> Iterator[Finding]:
    """Find lists of the job's hosts that two jobs write."""
    for command in script.commands:
        for sign, path in command.writes_to if _LISTS_HOSTS.match(command.text) else ():
            if sign in (">", ">>") and path.fixed and not path.text.startswith("/dev/"):
                yield found("hostfile-name-shared", command, f"every job writes {path.text}", facts={"path": path.text})
                return


def activation(script: BatchScript) -> Iterator[Finding]:
    """Find environments that are set up in a fragile way."""
    for command in script.named("source", "."):
        path = command.words[1].source.strip("\"'") if len(command.words) > 1 else ""
        if re.search(r"\.bashrc$|\.bash_profile$", path):
            yield found("sources-bashrc", command, f"{command.name} {path}")
        elif path == "activate" or re.search(r"(?:ana|mini|mamba|miniforge)\w*/bin/activate$", path):
            yield found("source-activate", command, command.text[:60])


_SETS_UP_CONDA = re.compile(
    r"conda\.sh\b|conda shell\.|\bhook\b|/activate\b|\.bashrc|bash_profile|conda\.csh|__conda_setup"
)


# Words of `module` that bring no conda.
_NO_CONDA = re.compile(
    r"(?i)load|purge|unload|use|--force|(?:cuda|cudnn|nccl|gcc|gnu|openmpi|intel|cmake|git|ffmpeg|slurm|singularity|apptainer)"
    r"\w*(?:[/-].*)?"
)


def conda(script: BatchScript) -> Iterator[Finding]:
    """Find environments of conda that are activated in a shell which has not been set up for it."""
    is_set_up = script.shell.not_here or re.match(r"#!.*\s-+(?:l|i|\w*[li]\b|login)", script.lines[0])
    for command in script.commands if script.is_batch_file and not is_set_up else ():
        text, second = " ".join(word.source for word in command.words), [word.text for word in command.words[1:2]]
        brings_none = all(_NO_CONDA.fullmatch(word.text) for word in command.words[1:])
        loads = command.name in ("module", "ml") and not brings_none
        if loads or _SETS_UP_CONDA.search(text) or command.name in ("source", ".", "eval"):
            return
        activates = command.name in ("conda", "mamba", "micromamba") and second == ["activate"]
        if activates and not command.dead and not command.within:
            yield found("conda-without-hook", command, text[:60])
            return


_GIVES_GPUS = re.compile(r"(?:^|\s)(?:--nv|--nvccli|--rocm|--gpus|--device|--runtime)\b|nvidia")


def containers(script: BatchScript) -> Iterator[Finding]:
    """Find containers without the GPUs that the job asks for."""
    if not script.request.gpus_per_node or any(True for _ in script.assigned(r"(?:APPTAINER|SINGULARITY)_(?:NV|ROCM)")):
        return
    for launch in script.living:
        layer = launch.layer("container")
        option_of = {"apptainer": "--nv", "singularity": "--nv", "docker": "--gpus", "podman": "--gpus"}
        if layer is None or layer.program not in option_of:
            continue
        own, for_gpus = layer.own, option_of[layer.program]
        is_started = "instance://" not in own and not (for_gpus == "--gpus" and " exec " in own)
        if is_started and HOLE + " " not in own and not _GIVES_GPUS.search(own):
            yield found("container-without-gpus", launch, f"{layer.program} without {for_gpus}")
            return


def unused_settings(script: BatchScript) -> Iterator[Finding]:
    """Find variables for ranks that torchrun sets itself."""
    if not script.living or any(launch.launcher_name != "torchrun" for launch in script.living):
        return
    text = "\n".join(line for line in script.lines if not re.match(r"\s*(?:#|echo)", line))
    for one in script.assigned("RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT"):
        if one.exported and not re.search(rf"\$\{{?{one.name}\b", text):
            yield found("unused-launcher-variables", one, f"{one.name} is set, and torchrun sets its own")
            return
