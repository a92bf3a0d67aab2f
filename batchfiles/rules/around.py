"""Faults around the training: in its environment, its files, its helpers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.commands import ShellCommand
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import HOLE, number
from batchfiles.rules.codes import Finding, found
from batchfiles.slurm.script import BatchScript
from batchfiles.slurm.servers import awaited_by_sleep
from trainjob.contract.programs.secret_names import holds_secret, is_placeholder, is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in
from trainjob.contract.programs.slurm_options import read_options

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
        given = [int(part) for part in one.value.text.split(",") if number(part) is not None]
        # Where Slurm confines a job, its own GPUs begin with 0.
        is_certain = one.value.fixed and not script.request.exclusive and "if" not in one.within
        if gpus and given and is_certain and max(given) >= gpus:
            text = f"{one.name}={one.value.text}, and the job has {gpus} GPU{'s' * (gpus != 1)} a node"
            yield found("device-beyond-gpus", one, text)
            return
        if one.value.text and not one.value.comes_from(
            "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL"
        ):
            yield found("sets-visible-devices", one, f"{one.name}={one.value.text.replace(HOLE, '…')}")
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
        if code == "nccl-slow-path" and one.name in _BETWEEN_NODES and script.request.nodes == 1:
            continue
        if code is not None and code not in reported:
            reported.add(code)
            yield found(code, one, f"{one.name}={one.value.text.replace(HOLE, '…')[:40]}")


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
    r"(?:\S*/)?(?:pip3?|conda|mamba|micromamba) (?:\S+ )*?(?:install|create|env create|env "
    r"update)\b|(?:\S*/)?uv (?:sync|pip install|add|venv)\b|"
    r"(?:\S*/)?python[\d.]* (?:-u )?-m pip (?:\S+ )*?install\b|(?:\S*/)?poetry install\b|"
    r"apt(?:-get)? (?:-\S+ )*install\b|npm (?:install|ci)\b|"
    r"(?:\S*/)?python[\d.]* -m venv\b|virtualenv (?:\S+ )*\S+|pipenv install|pixi install|"
    r"(?:\S*/)?python[\d.]* setup\.py (?:install|develop)"
)


def _installing(script: BatchScript) -> Iterator[ShellCommand]:
    """Yield the commands that install packages, of shells that srun starts, too."""
    for command in script.commands:
        if command.name in ("echo", "printf"):
            continue
        if _INSTALLS.match(_without_srun(command).replace("\n", " ")):
            yield command


def _without_srun(command: ShellCommand) -> str:
    """Return the words behind srun's own options."""
    if command.name != "srun":
        return command.text
    words = [word.text for word in command.words[1:]]
    following = max((after for _, _, after in read_options(words, "srun")), default=0)
    return " ".join(words[following:])


def installs(script: BatchScript) -> Iterator[Finding]:
    """Find packages that are installed while the job runs."""
    for command in _installing(script):
        yield found("installs-in-job", command, _without_srun(command).replace("\n", " ").replace(HOLE, "…")[:60])
        return


_ONE_RANK = re.compile(r"SLURM_(?:PROCID|LOCALID|NODEID)|\b(?:LOCAL_)?RANK\b")


def racing_installs(script: BatchScript) -> Iterator[Finding]:
    """Find installations that one rank makes in the step in which the others train."""
    for command in _installing(script):
        if "called" not in command.within or not any(
            launch.command.within[: command.within.index("called") + 1]
            == command.within[: command.within.index("called") + 1]
            for launch in script.training
        ):
            continue
        line = script.lines[command.line - 1] if 0 < command.line <= len(script.lines) else ""
        one_rank = any(_ONE_RANK.search(one.text) for one in command.conditions) or (
            {"after-and", "and"} & set(command.within) and _ONE_RANK.search(line)
        )
        if one_rank and not re.search(r"until|while|barrier|sleep|srun.*srun", line):
            yield found("install-races", command, f"{command.text.replace(HOLE, '…')[:50]}, by one rank alone")
            return


def kills(script: BatchScript) -> Iterator[Finding]:
    """Find programs that are ended by name, where other jobs may have them, too."""
    for command in script.named("pkill", "killall"):
        children = any(
            re.match(r"-[A-Za-z]*[Pgst]$|--(?:parent|session|pgroup)", word.text) for word in command.words[1:]
        )
        if not children and not script.request.exclusive and "called" not in command.within:
            yield found("kills-by-name", command, command.text.replace(HOLE, "…")[:60])
            return


def ray(script: BatchScript) -> Iterator[Finding]:
    """Find Ray clusters that are awaited by a sleep."""
    started = False
    checked = any(
        re.search(r"\bray (?:status|health-check)\b", command.text) and "condition" in command.within
        for command in script.commands
    )
    for command in script.commands:
        if re.search(r"\bray start\b", command.text):
            started = True
        elif started and command.name == "sleep" and not checked:
            yield found("ray-sleep-ready", command, command.text.replace(HOLE, "…"))
            return


def servers(script: BatchScript) -> Iterator[Finding]:
    """Find servers that are awaited by a sleep."""
    for sleep in awaited_by_sleep(script):
        yield found("server-sleep-ready", sleep, sleep.text.replace(HOLE, "…"))
        return


_LOCAL_DISK = re.compile(
    r"/tmp(?:/|$)|/dev/shm(?:/|$)|/local(?:_?scratch|disk|data|ssd)?(?:/|$)|"
    r"/scratch[_-]?local(?:/|$)|/(?:mnt/)?(?:nvme|ssd)\w*(?:/|$)|/raid(?:/|$)|/lscratch(?:/|"
    r"$)|/var/tmp(?:/|$)"
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
)
_FILLS = ("cp", "rsync", "tar", "unzip", "git", "unsquashfs", "wget", "curl", "scp", "mv", "virtualenv")


def local_disks(script: BatchScript) -> Iterator[Finding]:
    """Find files that the batch shell leaves on the first node's own disk, for ranks of others."""
    if not script.request.several_nodes or not any(launch.srun for launch in script.training):
        return
    reported: set[str] = set()
    for command in script.commands:
        if command.name == "mktemp" and "called" not in command.within and "-d" in command.text:
            reported.add("temp-dir-on-first-node-only")
            yield found("temp-dir-on-first-node-only", command, command.text)
        code = "temp-dir-on-first-node-only" if command.name == "mkdir" else "workdir-on-first-node-only"
        makes_venv = re.match(r"python[\d.]* -m venv |uv venv ", command.text) is not None
        fills = makes_venv or command.name in ("mkdir", "mktemp", "cd", *_FILLS)
        if not fills or "called" in command.within or code in reported:
            continue
        words = command.words[1:] if command.name in ("mkdir", "tar", "unzip", "git") else command.words[-1:]
        target = next((word for word in words if _is_local(word)), None)
        if target is not None and command.name != "cd":
            reported.add(code)
            yield found(code, command, f"{command.name} … {target.source[:50]}")


def _is_local(word: Word) -> bool:
    from_variable = word.text.startswith(HOLE) and word.value.comes_from(*_LOCAL_VARIABLES)
    return not word.source.startswith("-") and bool(_LOCAL_DISK.match(word.text) or from_variable)


def hostfiles(script: BatchScript) -> Iterator[Finding]:
    """Find hostfiles that two jobs write."""
    wanted = {}
    for launch in script.launches:
        for layer in launch.layers:
            value = next((layer.options[name] for name in ("hostfile", "machinefile") if layer.options.get(name)), None)
            if value is not None and value.fixed:
                wanted[value.text.removeprefix("./")] = launch.line
    for command in script.commands:
        for sign, path in command.writes_to:
            if sign in (">", ">>") and path.fixed and path.text.removeprefix("./") in wanted:
                yield found("hostfile-name-shared", command, f"every job writes {path.text}")
                return


def activation(script: BatchScript) -> Iterator[Finding]:
    """Find environments that are set up in a fragile way."""
    for command in script.named("source", "."):
        path = command.words[1].source.strip("\"'") if len(command.words) > 1 else ""
        if re.search(r"\.bashrc$|\.bash_profile$", path):
            yield found("sources-bashrc", command, f"{command.name} {path}")
        elif path == "activate" or re.search(r"(?:ana|mini|mamba|miniforge)\w*/bin/activate$", path):
            yield found("source-activate", command, command.text.replace(HOLE, "…")[:60])


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
    if (
        script.shell.not_here
        or re.match(r"#!.*\s-+(?:l|i|\w*[li]\b|login)", script.lines[0])
        or not script.is_batch_file
    ):
        return
    for command in script.commands:
        text = " ".join(word.source for word in command.words)
        loads = command.name in ("module", "ml") and not all(
            _NO_CONDA.fullmatch(word.text) for word in command.words[1:]
        )
        if loads or _SETS_UP_CONDA.search(text) or command.name in ("source", ".", "eval"):
            return
        if command.name in ("conda", "mamba", "micromamba") and [word.text for word in command.words[1:2]] == [
            "activate"
        ]:
            if not command.dead and not command.within:
                yield found("conda-without-hook", command, text[:60])
            return


_GIVES_GPUS = re.compile(r"(?:^|\s)(?:--nv|--nvccli|--rocm|--gpus|--device|--runtime)\b|nvidia")


def containers(script: BatchScript) -> Iterator[Finding]:
    """Find containers without the GPUs that the job asks for."""
    if not script.request.gpus_per_node or any(True for _ in script.assigned(r"(?:APPTAINER|SINGULARITY)_(?:NV|ROCM)")):
        return
    for launch in script.training:
        layer = launch.layer("container")
        name = layer.words[0].text.rpartition("/")[2] if layer else ""
        if layer is None or name not in ("apptainer", "singularity", "docker", "podman") or launch.command.dead:
            continue
        own = " ".join(word.text for word in layer.words[: len(layer.words) - layer.left])
        is_started = "instance://" not in own and not (name in ("docker", "podman") and " exec " in own)
        if is_started and HOLE + " " not in own and not _GIVES_GPUS.search(own):
            yield found(
                "container-without-gpus",
                launch,
                f"{name} without {'--nv' if name in ('apptainer', 'singularity') else '--gpus'}",
            )
            return


def unused_settings(script: BatchScript) -> Iterator[Finding]:
    """Find variables for ranks that torchrun sets itself."""
    training = script.living
    if not training or not all(
        launch.launcher is not None and launch.launcher.name == "torchrun" for launch in training
    ):
        return
    for one in script.assigned("RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT"):
        elsewhere = sum(
            len(re.findall(rf"\$\{{?{one.name}\b", line))
            for line in script.lines
            if not re.match(r"\s*(?:#|echo)", line)
        )
        if not elsewhere and one.exported:
            yield found("unused-launcher-variables", one, f"{one.name} is set, and torchrun sets its own")
            return
