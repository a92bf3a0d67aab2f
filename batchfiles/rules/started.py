"""Faults of what is started: how many processes, on which nodes, with which GPUs and CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.values import HOLE, number
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import BatchScript
from trainjob.contract.programs.helpers import SHELLS
from trainjob.contract.programs.launchers import STARTS_ON_NODES, TORCHRUN_OPTIONS, option_names


def worlds(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that make other worlds than their author wants."""
    for launch in script.living:
        launcher, per_node = launch.launcher, script.tasks_per_node_of(launch) or 1
        if launch.srun is None or _each_trains_its_own(script, launch):
            continue
        if launcher is None:
            yield from _world_a_task(script, launch, per_node)
            continue
        nodes = script.usual_nodes_of(launch)
        # Who meets at another host's address counts on several nodes, whose number sbatch's command line has.
        meets = option(launcher, "rdzv_endpoint", "master_addr")
        meets_elsewhere = meets is not None and not meets.text.startswith(("localhost", "127."))
        if launcher.name == "torchrun" and (nodes > 1 if nodes else meets_elsewhere) and _alone(launch):
            is_guess = nodes is not None and script.nodes_of(launch) is None and not meets_elsewhere
            lighter = Severity.WARNING if is_guess else None
            text = f"{nodes or 'several'} nodes, and torchrun has {_alone(launch)}"
            yield found("nnodes-missing", launch, text, lighter)
        stated = {"num_machines", "config_file", "standalone"} & set(launcher.options)
        asks = {"num_processes", "multi_gpu"} & set(launcher.options)
        if launcher.name == "accelerate" and (script.nodes_of(launch) or 1) > 1 and asks and not stated:
            text = f"{nodes} nodes, and accelerate has no --num_machines"
            cure = "Add --num_machines=$SLURM_NNODES, --main_process_ip and --rdzv_backend=c10d."
            if not launch.has_unknown_options:
                yield found("nnodes-missing", launch, text)._replace(own_cure=cure)
        elif launcher.name == "deepspeed" and (script.nodes_of(launch) or 1) > 1 and _knows_no_other_node(launch):
            text = f"{nodes} nodes, and deepspeed has no --hostfile"
            cure = "Start it without srun, with --hostfile: it starts on the nodes by itself."
            yield found("nnodes-missing", launch, text)._replace(own_cure=cure)
        local = processes_of(launch)
        # Two of deepspeed on a node meet at the same port, however many each starts.
        several = (local or 0) > 1 or (launcher.name == "deepspeed" and local is None and _knows_no_other_node(launch))
        if launcher.name in ("torchrun", "accelerate", "deepspeed", "composer") and per_node > 1 and several:
            text = f"{per_node} tasks a node, each of which starts {local or 'several'} processes"
            yield found("tasks-times-torchrun", launch, text)


def _world_a_task(script: BatchScript, launch: LaunchedProgram, per_node: int) -> Iterator[Finding]:
    """Find a program that starts all ranks, and is itself started several times."""
    mpi, tasks = launch.layer("mpirun"), per_node * (script.nodes_of(launch) or 1)
    if tasks > 1 and (ranks := number_of(mpi, "np", "n") or 1) > 1 and mpi is not None:
        text = f"{tasks} tasks, each of which starts {mpi.words[0].text} with {ranks} processes"
        cure = "Start it once: without srun, or by srun --nodes=1 --ntasks=1."
        yield found("tasks-times-torchrun", launch, text)._replace(own_cure=cure)


def _knows_no_other_node(launch: LaunchedProgram) -> bool:
    """Return whether each deepspeed takes its own node for all."""
    own = {"hostfile", "H", "include", "i", "no_ssh", "node_rank", "master_port"}
    return launch.launcher is not None and not (own & set(launch.launcher.options) or launch.has_unknown_options)


def _each_trains_its_own(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether each node is meant to train for itself: its training has other words, and nothing says a place."""
    differs = any(word.value.comes_from("SLURM_NODEID", "SLURM_PROCID") for word in launch.program)
    own = launch.launcher.options if launch.launcher else {}
    meets = {"rdzv_endpoint", "rdzv_backend", "master_addr", "node_rank", "nnodes", "main_process_ip"} & set(own)
    return differs and not meets and not any(True for _ in script.assigned("MASTER_ADDR"))


def _alone(launch: LaunchedProgram) -> str | None:
    """Return why torchrun makes a separate world on each node."""
    launcher = launch.launcher
    if (
        launcher is None
        or launch.has_unknown_options
        or "PET_NNODES" in launch.settings
        or "PET_NNODES" in launch.command.variables.values
    ):
        return None
    if "standalone" in launcher.options:
        return "--standalone"
    value = option(launcher, "nnodes")
    if value is None:
        return "no --nnodes"
    return (
        "--nnodes=1"
        if value.text.strip() == "1" and not value.comes_from("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
        else None
    )


def elastic_alone(script: BatchScript) -> Iterator[Finding]:
    """Find elastic ranges that no node can join."""
    for launch in script.living:
        value = option(launch.launcher, "nnodes")
        alone = script.request.nodes == 1 or (script.request.nodes is None and launch.srun is None)
        if alone and value is not None and re.fullmatch(r"\d+:\d+", value.text):
            yield found("nnodes-range-on-one-node", launch, f"--nnodes={value.text}")


def processes_of(launch: LaunchedProgram) -> int | None:
    """Return how many processes a launcher starts on one node; None if the file does not tell."""
    launcher = launch.launcher
    if launcher is None or launch.has_unknown_options:
        return None
    if launcher.name == "torchrun":
        value = option(launcher, "nproc_per_node") or launch.settings.get("PET_NPROC_PER_NODE")
        value = value or launch.command.variables.values.get("PET_NPROC_PER_NODE")
        return 1 if value is None else number(value.text.strip())
    stated = number_of(launcher, *option_names("ranks", of=launcher.name))
    if stated is not None:
        return stated
    world = number_of(launcher, *option_names("world", of=launcher.name))
    nodes = option_names("nodes", of=launcher.name)
    machines = number_of(launcher, *nodes) if set(nodes) & set(launcher.options) else 1
    return world // machines if world and machines and world >= machines else None


def gpus(script: BatchScript) -> Iterator[Finding]:
    """Find processes and GPUs that disagree in number."""
    living = script.living
    at_once = sum(launch.command.background for launch in living) > 1
    for launch in living:
        available, local = script.gpus_of(launch), processes_of(launch)
        per_node = script.tasks_per_node_of(launch) or 1
        if launch.launcher is None:
            yield from _tasks_and_gpus(script, launch)
        if (
            available is None
            or local is None
            or (per_node > 1 and not 1 < local < available <= per_node * local)
            or "cpu" in (launch.launcher.options if launch.launcher else {})
        ):
            continue
        visible = _visible(launch)
        if local > min(available, visible or available):
            available = min(available, visible or available)
            text = f"{local} processes a node, and {available} GPU{'s' * (available != 1)}"
            yield found("more-processes-than-gpus", launch, text)
        elif local < available and not at_once and not (len(living) > 1 and launch.is_beside):
            text = f"{local} process{'es' * (local != 1)} a node, and {available} GPUs"
            yield found("gpus-unused", launch, text)


def _visible(launch: LaunchedProgram) -> int | None:
    """Return the number of GPUs to which CUDA_VISIBLE_DEVICES confines a launch."""
    name = "CUDA_VISIBLE_DEVICES"
    value = launch.settings.get(name, launch.command.variables.values.get(name))
    is_list = value is not None and value.fixed and re.fullmatch(r"[0-9]+(?:,[0-9]+)*", value.text)
    return value.text.count(",") + 1 if value is not None and is_list else None


def _tasks_and_gpus(script: BatchScript, launch: LaunchedProgram) -> Iterator[Finding]:
    """Find one-rank-a-task launches with more tasks than GPUs, or fewer."""
    per_node, available = script.tasks_per_node_of(launch), script.request.gpus_per_node
    mpi, own = launch.layer("mpirun"), _ASKS_FOR_GPUS & set(launch.srun.options if launch.srun else ())
    if not (launch.is_python and available) or own or (mpi is None) is (launch.srun is None):
        return
    if mpi is not None:
        every, ranks = available * (script.request.nodes or 1), number_of(mpi, "n", "np", "c")
        if ranks and 1 < ranks < every and every % ranks:
            yield found("gpus-unused", launch, f"{ranks} processes, and {every} GPUs")
        if (_OTHER_SLOTS | {"n", "np", "c", "N", "npernode", "perhost", "rankfile"}) & set(mpi.options):
            return
        per_node = script.request.tasks_per_node  # it starts one for each
    if not per_node:
        return
    text = f"{per_node} task{'s' * (per_node != 1)} a node, and {available} GPU{'s' * (available != 1)}"
    stated = number(script.header.value("ntasks-per-node"))
    if per_node > available:
        yield found("more-processes-than-gpus", launch, text)
    elif per_node == 1 < min(stated or 1, available) and script.request.tasks == script.request.nodes:
        yield found("gpus-unused", launch, f"--ntasks outdoes --ntasks-per-node={stated}: {text}")
    elif 1 < per_node < available and not (script.request.gpus_per_task or _divides_gpus(script)):
        # One task may use several, and each of these the same number.
        yield found("gpus-unused", launch, text, None if available % per_node else Severity.WARNING)


def _divides_gpus(script: BatchScript) -> bool:
    """Return whether each task chooses its GPUs by its number on the node."""
    chosen = script.assigned("(?:CUDA|ROCR|HIP)_VISIBLE_DEVICES")
    return any(one.value.comes_from("SLURM_LOCALID", "SLURM_PROCID") for one in chosen)


_OTHER_MPI = re.compile(
    r"(?i)\bI_MPI_|\bintel-?(?:mpi|oneapi)|\bimpi\b|\bmpich\b|\bmvapich|\boneapi\b|cray-mpich|PRTE_|OMPI_MCA_rmaps"
)
# Options that name other slots than the job's tasks.
_OTHER_SLOTS = frozenset(
    ("oversubscribe", "hostfile", "machinefile", "host", "H", "map_by", "hosts", "ppn", "bootstrap", "f")
)
_ASKS_FOR_GPUS = frozenset(("gpus", "gres", "gpus-per-node", "gpus-per-task", "ntasks-per-gpu"))


def mpi_slots(script: BatchScript) -> Iterator[Finding]:
    """Find more processes than Open MPI has slots for: one a task of the job."""
    if not script.is_batch_file or _OTHER_MPI.search(_code(script)):
        return
    request = script.request
    slots = request.tasks or (request.nodes or 1) * (request.tasks_per_node or 1)
    for launch in script.living:
        mpi = launch.layer("mpirun")
        if mpi is None or mpi.words[0].text.rpartition("/")[2] != "mpirun" or launch.srun is not None:
            continue
        wanted = number_of(mpi, "n", "np", "c")
        if wanted is not None and wanted > slots and not _OTHER_SLOTS & set(mpi.options):
            yield found(
                "mpirun-beyond-tasks", launch, f"{wanted} processes, and the job has {slots} task{'s' * (slots != 1)}"
            )


def options_of_the_script(script: BatchScript) -> Iterator[Finding]:
    """Find options of the training that stand before its script."""
    for launch in script.living:
        launcher = launch.launcher
        if launcher is None or launcher.name != "torchrun" or launch.has_unknown_options or not launch.program:
            continue
        if re.fullmatch(r"python[\d.]*", launch.program[0].text) and "no_python" not in launcher.options:
            text = f"{launch.program[0].text} stands where the script belongs"
            cure = "Leave it out: the launcher starts Python itself. With --no-python it starts any program."
            yield found("option-before-script", launch, text)._replace(own_cure=cure)
            return
        for name in launcher.options:
            if len(name) > 1 and not any(known.startswith(name) for known in TORCHRUN_OPTIONS):
                yield found(
                    "option-before-script",
                    launch,
                    f"--{name} stands before {launch.program[0].text.replace(HOLE, '…')[:40]}",
                )
                return


_FOR_GPUS = re.compile(r"(?i)\bcuda\b|nvidia-smi|\bnccl\b|NCCL_|CUDA_|--gpus?\b|\bgpus?\b|apptainer exec --nv|--nv\b")


_GPU_NODES = re.compile(r"(?i)gpu|a100|h100|v100|cuda|dgx|gh200|mi[0-9]")


def unasked_gpus(script: BatchScript) -> Iterator[Finding]:
    """Find several processes for GPUs in a job that asks for none."""
    header = script.header
    sites = " ".join(header.value(name) or "" for name in ("partition", "constraint", "qos", "account", "reservation"))
    if not header.directives or script.asks_for_gpus or _GPU_NODES.search(sites):
        return
    if any("sbatch" in comment and re.search(r"--g(?:res|pus)", comment) for _, comment in script.comments):
        return  # its command line has them
    # A script in a container may be the training.
    held = [one for one in script.launches if one.layer("container") and not one.command.dead]
    for launch in (*script.living, *held):
        own = _ASKS_FOR_GPUS & set(launch.srun.options if launch.srun else ())
        on_cpus = "cpu" in (launch.launcher.options if launch.launcher else ())
        processes = processes_of(launch)
        several = processes > 1 if processes is not None else _counts_gpus(launch)
        container, visible = launch.layer("container"), _visible(launch)
        has_gpus = container is not None and any(
            word.text in ("--nv", "--rocm", "--gpus=all") for word in container.words[: -container.left or None]
        )
        if (several or has_gpus or visible) and not own and not on_cpus and _FOR_GPUS.search(_code(script)):
            what = f"{processes or 'several'} processes a node" if several else "the training uses GPUs"
            text = f"{what}, and no directive asks for GPUs"
            yield found("no-gpus", launch, text)
            return


def _counts_gpus(launch: LaunchedProgram) -> bool:
    """Return whether a launch starts a process for each GPU that nvidia-smi lists."""
    value = option(launch.launcher, *option_names("ranks", of=launch.launcher.name)) if launch.launcher else None
    return value is not None and re.search(r"nvidia-smi|rocm-smi|device_count", value.commands()) is not None


def idle_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find a last command that runs on one node of several."""
    living = script.living
    if not script.request.several_nodes or len(living) < 2:
        return
    last, before = living[-1], living[:-1]
    alone = last.srun is None and last.is_python and last.outer is None and not last.command.background
    if alone and any(one.srun is not None and one.outer is None for one in before):
        yield found("nodes-idle", last, f"{last.name.replace(HOLE, '…')} runs on one of {script.request.nodes} nodes")


def several_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find jobs of several nodes that use one."""
    if (script.usual_nodes or 1) < 2 or not script.living:
        return
    if script.shell.not_here and not any(launch.launcher for launch in script.training):
        return
    if (alone := _horovod_alone(script)) is not None:
        yield found(
            "no-srun", alone, f"--nodes={script.usual_nodes}, and horovodrun without -H starts all on the first"
        )
        return
    if any(
        STARTS_ON_NODES.fullmatch(command.name) and "substitution" not in command.within for command in script.commands
    ):
        return
    if any(launch.layer("srun", "mpirun") for launch in script.training) or re.search(
        r"\bsrun\b|hostfile", _code(script)
    ):
        return
    first = script.living[-1]
    own = option(first.launcher, "hostfile", "H", "host")
    if own is None and not any(command.name == "ray" for command in script.commands):
        text = f"--nodes={script.usual_nodes}, and {first.command.name} runs on the first alone"
        yield found("no-srun", first, text, Severity.WARNING if script.guesses_nodes else None)


def _horovod_alone(script: BatchScript) -> LaunchedProgram | None:
    """Return a horovodrun that learns of no other host: it asks LSF, and not Slurm."""
    for launch in script.living:
        mpi = launch.layer("mpirun")
        own = mpi.words[0].text.rpartition("/")[2] == "horovodrun" if mpi is not None else False
        if mpi is not None and own and launch.srun is None and not _OTHER_SLOTS & set(mpi.options):
            return launch
    return None


def _code(script: BatchScript) -> str:
    return "\n".join(line.partition(" #")[0] for line in script.lines if not line.lstrip().startswith("#"))


def bad_exit(script: BatchScript) -> Iterator[Finding]:
    """Find ranks that are left hanging when another has died."""
    reported = False
    for launch in script.training:
        srun = launch.srun
        if srun is None:
            continue
        stated = srun.options.get("kill-on-bad-exit")
        everywhere = launch.command.variables.values.get("SLURM_KILL_BAD_EXIT")
        if (stated is not None and stated.text == "0") or (everywhere is not None and everywhere.text == "0"):
            yield found("kill-on-bad-exit-0", launch.step, "--kill-on-bad-exit=0")
        elif stated is None and everywhere is None and not reported and _spans_nodes(script, launch):
            reported = True
            yield found("no-kill-on-bad-exit", launch.step, "srun without --kill-on-bad-exit")


def _spans_nodes(script: BatchScript, launch: LaunchedProgram) -> bool:
    nodes = script.usual_nodes_of(launch)
    if nodes is not None and nodes > 1:
        return True
    if nodes is not None:
        return launch.launcher is None and launch.is_python and (script.tasks_per_node_of(launch) or 1) > 1
    ignored = any("nodes" in one.meant for one in script.header.ignored)
    unknown_tasks = script.header.value("ntasks") is not None and (script.request.tasks or 2) > 1
    return (
        ignored
        or "nodes" in (launch.srun.options if launch.srun else {})
        or (unknown_tasks and launch.launcher is None)
        or script.header.value("nodes") not in (None, "1")
    )


def ray_starts(script: BatchScript) -> list[LaunchedProgram]:
    """Return the steps that start Ray on their nodes: the training runs in them."""
    return [one for one in script.launches if [word.text for word in one.program[:2]] == ["ray", "start"]]


def cpus(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that get one CPU."""
    if (script.request.cpus_per_task or 0) < 2 or script.site.srun_inherits_cpus:
        return
    scripts = [] if script.training else [one for one in script.launches if one.name in SHELLS and one.program[1:]]
    for launch in (*ray_starts(script), *script.training, *scripts):
        srun = launch.srun
        if srun is None or launch.command.dead or "cpus-per-task" in srun.options:
            continue
        if "SRUN_CPUS_PER_TASK" in launch.command.variables.values or "SRUN_CPUS_PER_TASK" in launch.settings:
            continue
        if any(one.name == "SRUN_CPUS_PER_TASK" for one in script.assignments):
            continue
        text = f"--cpus-per-task={script.request.cpus_per_task}, and srun does not have it"
        yield found("srun-loses-cpus", launch.step, text)
        return


def threads(script: BatchScript) -> Iterator[Finding]:
    """Find ranks whose number of threads was not chosen."""
    if any(one.name == "OMP_NUM_THREADS" for one in script.assigned("OMP_NUM_THREADS")):
        return
    for launch in script.training:
        several = (
            launch.srun is not None
            and (script.usual_nodes_of(launch) or 1) * (script.tasks_per_node_of(launch) or 1) > 1
        )
        if launch.launcher or several:
            yield found("threads-unset", launch, "OMP_NUM_THREADS is not set")
            return


def hidden_peers(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that see one GPU each."""
    for launch in script.training:
        srun = launch.srun
        if srun is None:  # the batch shell sees all GPUs of its node
            continue
        per_task = number_of(srun, "gpus-per-task") or script.request.gpus_per_task
        binding = option(srun, "gpu-bind")
        per_node = script.tasks_per_node_of(launch)
        per_node = per_node or (script.request.tasks if script.request.nodes is None else None)
        bound = binding.text if binding else script.header.value("gpu-bind")
        if per_task == 1 and (per_node or 1) > 1 and not bound:
            line = launch.line if "gpus-per-task" in srun.options else script.header.line("gpus-per-task")
            yield Finding(
                "gpus-per-task-hides-peers",
                line,
                f"--gpus-per-task=1 with {per_node} tasks{' a node' if script.request.nodes else ''}",
            )
            return


_PREPARES = re.compile(r"(?i).*(?:prepare|download|preprocess|tokeni[sz]e_data|setup|install|convert)\w*\.(?:py|sh)")


def fans_out(script: BatchScript) -> Iterator[Finding]:
    """Find preparations that run once a task."""
    for launch in script.launches:
        srun = launch.srun
        if (
            srun is None
            or {"ntasks", "nodes", "ntasks-per-node"} & set(srun.options)
            or {"substitution", "condition"} & set(launch.command.within)
            or any(re.search(r"RANK|PROCID|LOCALID|NODEID", one.text) for one in launch.command.conditions)
        ):
            continue
        tasks = max(script.request.tasks or 1, script.request.nodes or 1)
        several = tasks > 1 or (script.header.value("nodes") is not None and script.request.nodes is None)
        name = launch.program[0].text if launch.program else ""
        installs = name in ("pip", "pip3", "conda", "git", "wget", "curl", "unzip", "tar") or (
            launch.is_python and name == "pip"
        )
        prepares = _PREPARES.fullmatch(name) or [word.text for word in launch.program[1:2]] == ["preprocess"]
        if several and (installs or prepares):
            yield found("srun-may-fan-out", launch, f"srun {name}: {tasks if tasks > 1 else 'several'} times")


def binding(script: BatchScript) -> Iterator[Finding]:
    """Find CPUs that the job does not have."""
    for launch in script.launches:
        bound = launch.srun.options.get("cpu-bind") if launch.srun else None
        if bound is None or not bound.known:
            continue
        highest = _highest_cpu(bound.text)
        per_node, each = script.tasks_per_node_of(launch), script.request.cpus_per_task
        asked = per_node * each if per_node and each and not script.request.exclusive else None
        # A core may have two CPUs, and Slurm may count cores.
        limit = script.site.cpus or (2 * asked if asked else None)
        if highest is not None and limit is not None and highest >= limit:
            yield found("cpu-bind-beyond", launch, f"CPU {highest} of {limit}")


def _highest_cpu(text: str) -> int | None:
    maps, masks = re.search(r"map_cpu:([\d,-]+)", text), re.search(r"mask_cpu[:=]([0-9a-fA-Fx,]+)", text)
    if maps:
        return max((int(one) for one in re.findall(r"\d{1,6}", maps[1])), default=None)
    if masks:
        values = [int(one, 16) for one in re.findall(r"(?:0x)?[0-9a-fA-F]+", masks[1])]
        return max((value.bit_length() - 1 for value in values), default=None)
    return None


def tasks_without_starter(script: BatchScript) -> int | None:
    """Return the number of a job's tasks where it has several and nothing starts them: then they are CPUs."""
    tasks = script.request.tasks_per_node or script.request.tasks or 1
    has_starter = re.search(r"\b(?:srun|mpirun|mpiexec|prun|ibrun)\b", _code(script)) is not None
    return tasks if tasks > 1 and not has_starter else None


def unused_tasks(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that nothing starts."""
    unseen = any(one.name in SHELLS and one.program[1:] and not one.command.dead for one in script.launches)
    if (tasks := tasks_without_starter(script)) and (script.living or unseen):
        yield Finding("tasks-unused", script.header.line("ntasks-per-node", "ntasks"), f"{tasks} tasks, and no srun")
