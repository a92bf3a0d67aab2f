"""Faults of what is started: how many processes, on which nodes, with which GPUs and CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.values import number
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.script import ASKS_FOR_GPUS, BatchScript
from batchfiles.slurm.servers import SERVES_MODEL
from trainjob.contract.programs.launchers import ALL_OPTIONS, STARTS_ON_NODES, option_names


def worlds(script: BatchScript) -> Iterator[Finding]:
    """Find launchers that make other worlds than their author wants."""
    for launch in script.living:
        per_node = script.tasks_per_node_of(launch) or 1
        if launch.srun is None or _each_trains_its_own(script, launch):
            continue
        if launch.launcher is None:
            yield from _world_a_task(script, launch, per_node)
            continue
        yield from _world_a_node(script, launch)
        local = processes_of(launch)
        # Two of deepspeed on a node meet at the same port, however many each starts.
        several = (local or 0) > 1 or (local is None and _knows_no_other_node(launch))
        if launch.launcher_name in ("torchrun", "accelerate", "deepspeed", "composer") and per_node > 1 and several:
            text = f"{per_node} tasks a node, each of which starts {local or 'several'} processes"
            yield found("tasks-times-torchrun", launch, text)


def _world_a_node(script: BatchScript, launch: LaunchedProgram) -> Iterator[Finding]:
    """Find a launcher on several nodes that takes each for all."""
    nodes, certain = script.usual_nodes_of(launch), script.nodes_of(launch)
    if launch.launcher_name == "torchrun" and (why := _alone(launch)):
        # Who meets at another host's address counts on several nodes, whose number sbatch's command line has.
        meets = option(launch.launcher, "rdzv_endpoint", "master_addr")
        meets_elsewhere = meets is not None and not meets.text.startswith(("localhost", "127."))
        if nodes > 1 if nodes else meets_elsewhere:
            lighter = None if meets_elsewhere or certain is not None else Severity.WARNING
            yield found("nnodes-missing", launch, f"{nodes or 'several'} nodes, and torchrun has {why}", lighter)
    elif (certain or 1) > 1 and starts_on_nodes(launch):
        cure = "Start it once: without srun, or by srun --nodes=1 --ntasks=1."
        if launch.launcher_name == "accelerate":
            cure = "--deepspeed_multinode_launcher=standard, for one launcher on each node."
        text = f"srun starts {launch.launcher_name} on {certain} nodes, and each lets deepspeed start on all nodes"
        yield found("tasks-times-torchrun", launch, text, cure=cure)
    elif (certain or 1) > 1 and launch.launcher_name == "accelerate" and not launch.has_unknown_options:
        if launch.options.keys() & _SEVERAL_OF_ACCELERATE and not launch.options.keys() & _NODES_OF_ACCELERATE:
            cure = "Add --num_machines=$SLURM_NNODES, --main_process_ip and --rdzv_backend=c10d."
            yield found("nnodes-missing", launch, f"{nodes} nodes, and accelerate has no --num_machines", cure=cure)
    elif (certain or 1) > 1 and _knows_no_other_node(launch):
        cure = "Start it without srun, with --hostfile: it starts on the nodes by itself."
        yield found("nnodes-missing", launch, f"{nodes} nodes, and deepspeed has no --hostfile", cure=cure)


_SEVERAL_OF_ACCELERATE = {"num_processes", "multi_gpu"}
_NODES_OF_ACCELERATE = {"num_machines", "config_file", "standalone"}
_NODES_OF_DEEPSPEED = {"hostfile", "H", "include", "i", "no_ssh", "node_rank", "master_port"}


def _world_a_task(script: BatchScript, launch: LaunchedProgram, per_node: int) -> Iterator[Finding]:
    """Find a program that starts all ranks, and is itself started several times."""
    mpi, own = launch.layer("mpirun"), launch.srun.options.keys() if launch.srun else set()
    of_job = None if own & {"nodes", "ntasks", "ntasks-per-node"} else script.request.tasks
    tasks = of_job or per_node * (script.nodes_of(launch) or 1)
    ranks = number_of(mpi, "np", "n") or 1
    if mpi is not None and tasks > 1 and ranks > 1:
        cure = "Start it once: without srun, or by srun --nodes=1 --ntasks=1."
        text = f"{tasks} tasks, each of which starts {mpi.words[0].text} with {ranks} processes"
        yield found("tasks-times-torchrun", launch, text, cure=cure)


def starts_on_nodes(launch: LaunchedProgram) -> bool:
    """Return whether deepspeed starts on all nodes by ssh, and not as one of several."""
    stated, launcher = launch.options.keys(), launch.options.get("deepspeed_multinode_launcher")
    if launch.launcher_name == "accelerate":  # which takes pdsh where nothing else is stated
        several = "use_deepspeed" in stated and number_of(launch.launcher, "num_machines") != 1
        is_one = launcher is not None and launcher.text in ("standard", "nossh")
        return several and "num_machines" in stated and not is_one and "config_file" not in stated
    hostfile = option(launch.launcher, "hostfile", "H")
    return launch.launcher_name == "deepspeed" and hostfile is not None and not {"no_ssh", "node_rank"} & stated


def _knows_no_other_node(launch: LaunchedProgram) -> bool:
    """Return whether each deepspeed takes its own node for all."""
    states = bool(launch.options.keys() & _NODES_OF_DEEPSPEED) or launch.has_unknown_options
    return launch.launcher_name == "deepspeed" and not states


def _each_trains_its_own(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether each node is meant to train for itself: its training has other words, and nothing says a place."""
    differs = any(word.value.comes_from("SLURM_NODEID", "SLURM_PROCID") for word in launch.program)
    meets = {"rdzv_endpoint", "rdzv_backend", "master_addr", "node_rank", "main_process_ip"}
    counts = number_of(launch.launcher, "nnodes") != 1 if "nnodes" in launch.options else False
    return differs and not (counts or launch.options.keys() & meets or any(script.assigned("MASTER_ADDR")))


def _alone(launch: LaunchedProgram) -> str:
    """Return why torchrun makes a separate world on each node; empty if it does not."""
    if launch.has_unknown_options or launch.environment("PET_NNODES") is not None:
        return ""
    if "standalone" in launch.options:
        return "--standalone"
    value = option(launch.launcher, "nnodes")
    if value is None:
        return "no --nnodes"
    follows = value.comes_from("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    return "--nnodes=1" if value.text.strip() == "1" and not follows else ""


def elastic_alone(script: BatchScript) -> Iterator[Finding]:
    """Find elastic ranges that no node can join."""
    for launch in script.living:
        value = option(launch.launcher, "nnodes")
        alone = script.request.nodes == 1 or (script.request.nodes is None and launch.srun is None)
        if alone and value is not None and re.fullmatch(r"\d+:\d+", value.text):
            yield found("nnodes-range-on-one-node", launch, f"--nnodes={value.text}")


def processes_of(launch: LaunchedProgram) -> int | None:
    """Return how many processes a launcher starts on one node; None if the file does not tell."""
    launcher, options = launch.launcher, launch.options
    if launcher is None or launch.has_unknown_options:
        return None
    if launcher.name == "torchrun":
        value = option(launcher, "nproc_per_node") or launch.environment("PET_NPROC_PER_NODE")
        return 1 if value is None else number(value.text.strip())
    stated = number_of(launcher, *option_names("ranks", of=launcher.name))
    if stated is not None:
        return stated
    chosen = option(launcher, "include", "i") if launcher.name == "deepspeed" else None
    if chosen is not None and (listed := re.fullmatch(r"[\w.-]+:([0-9]+(?:,[0-9]+)*)", chosen.text)):
        return listed[1].count(",") + 1
    world, nodes = (option_names(of_what, of=launcher.name) for of_what in ("world", "nodes"))
    ranks, machines = number_of(launcher, *world), number_of(launcher, *nodes) if options.keys() & set(nodes) else 1
    return ranks // machines if ranks and machines and ranks >= machines else None


def gpus(script: BatchScript) -> Iterator[Finding]:
    """Find processes and GPUs that disagree in number."""
    living = script.living
    choices = len({one.value.text for one in script.assigned("CUDA_VISIBLE_DEVICES")})
    others = [one for one in script.launches if one.command.background and _takes_gpus(one)]
    at_once = sum(launch.command.background for launch in living) > 1
    for launch in living:
        available, local = script.gpus_of(launch), processes_of(launch)
        per_node = script.tasks_per_node_of(launch) or 1
        if launch.launcher is None:
            yield from _tasks_and_gpus(script, launch)
        visible = _visible(launch)
        is_alone = launch.launcher is None and len(living) == per_node == choices == 1
        if is_alone and available and visible and visible < available:
            text = f"{visible} of {available} GPUs {'are' if visible > 1 else 'is'} in CUDA_VISIBLE_DEVICES"
            yield found("gpus-unused", launch, text)
        if available is None or local is None or "cpu" in launch.options:
            continue
        if per_node > 1 and not 1 < local < available <= per_node * local:
            continue
        usable = min(available, visible or available)
        if local > usable:
            text = f"{local} processes a node, and {usable} GPU{'s' * (usable != 1)}"
            yield found("more-processes-than-gpus", launch, text)
        elif local < available and not at_once and not (len(living) > 1 and launch.is_beside):
            taken = [_visible(one) or available for one in others if one is not launch]
            if local < (left := available - sum(taken)):
                text = f"{local} process{'es' * (local != 1)} a node, and {left} GPUs"
                yield found("gpus-unused", launch, text)


def _takes_gpus(launch: LaunchedProgram) -> bool:
    """Return whether a program beside the training has GPUs of its own, or may take any."""
    return "CUDA_VISIBLE_DEVICES" in launch.settings or SERVES_MODEL.search(launch.command.text) is not None


def _visible(launch: LaunchedProgram) -> int | None:
    """Return the number of GPUs to which CUDA_VISIBLE_DEVICES confines a launch."""
    value = option(launch.launcher, "gpu_ids") or launch.environment("CUDA_VISIBLE_DEVICES")
    is_list = value is not None and value.fixed and re.fullmatch(r"[0-9]+(?:,[0-9]+)*", value.text)
    return value.text.count(",") + 1 if value is not None and is_list else None


def _tasks_and_gpus(script: BatchScript, launch: LaunchedProgram) -> Iterator[Finding]:
    """Find one-rank-a-task launches with more tasks than GPUs, or fewer."""
    per_node, available = script.tasks_per_node_of(launch), script.request.gpus_per_node
    mpi, own = launch.layer("mpirun"), _own_gpus(launch)
    is_script = launch.is_script or launch.name.endswith(".sh")  # which may start launchers
    if is_script or not available or own or (mpi is None) is (launch.srun is None):
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
        text = f"--ntasks outdoes --ntasks-per-node={stated}: {text}"
        yield found("gpus-unused", launch, text, facts={"directive": "ntasks"})
    elif 1 < per_node < available and not (script.request.gpus_per_task or _divides_gpus(script)):
        # One task may use several, and each of these the same number.
        yield found("gpus-unused", launch, text, None if available % per_node else Severity.WARNING)


def _divides_gpus(script: BatchScript) -> bool:
    """Return whether each task chooses its GPUs by its number on the node."""
    chosen = script.assigned("(?:CUDA|ROCR|HIP)_VISIBLE_DEVICES")
    return any(one.value.comes_from("SLURM_LOCALID", "SLURM_PROCID") for one in chosen)


def _own_gpus(launch: LaunchedProgram) -> bool:
    """Return whether srun asks for the GPUs of a launch."""
    return launch.srun is not None and bool(ASKS_FOR_GPUS & launch.srun.options.keys())


_OTHER_MPI = re.compile(
    r"(?i)\bI_MPI_|\bintel-?(?:mpi|oneapi)|\bimpi\b|\bmpich\b|\bmvapich|\boneapi\b|cray-mpich|PRTE_|OMPI_MCA_rmaps"
)
# Options that name other slots than the job's tasks.
_OTHER_SLOTS = frozenset(
    ("oversubscribe", "hostfile", "machinefile", "host", "H", "map_by", "hosts", "ppn", "bootstrap", "f")
)


def mpi_slots(script: BatchScript) -> Iterator[Finding]:
    """Find more processes than Open MPI has slots for: one a task of the job."""
    if not script.is_batch_file or _OTHER_MPI.search(script.code):
        return
    request = script.request
    slots = request.tasks or (request.nodes or 1) * (request.tasks_per_node or 1)
    for launch in script.living:
        mpi = launch.layer("mpirun")
        if mpi is None or mpi.program != "mpirun" or launch.srun is not None or _OTHER_SLOTS & mpi.options.keys():
            continue
        wanted = number_of(mpi, "n", "np", "c")
        if wanted is not None and wanted > slots:
            text = f"{wanted} processes, and the job has {slots} task{'s' * (slots != 1)}"
            yield found("mpirun-beyond-tasks", launch, text, facts={"wanted": str(wanted)})


_TYPED = re.compile(r"[A-Za-z][\w.-]*:[0-9]+")


def typed_counts(script: BatchScript) -> Iterator[Finding]:
    """Find numbers of GPUs that are given with the type of the directive."""
    names = ("SLURM_GPUS_PER_NODE", "SLURM_GPUS")
    given = [one for one in script.assignments if one.value.comes_from(*names) and _TYPED.fullmatch(one.value.text)]
    for launch in script.living:
        for name in option_names("ranks", "world", of=launch.launcher_name) if launch.launcher else ():
            value = launch.options.get(name)
            if value is not None and value.comes_from(*names) and _TYPED.fullmatch(value.text):
                place = next((one for one in given if one.value.text == value.text), launch)
                yield found("count-with-type", place, f"--{name.replace('_', '-')} is {value.text}")
                return
    for used in script.shell.no_numbers:
        if used.value.comes_from(*names) and _TYPED.fullmatch(used.value.text):
            place = next((one for one in given if (one.name, one.value) == (used.name, used.value)), used)
            yield found("count-with-type", place, f"{used.name} is {used.value.text}, and bash calculates with it")
            return


def options_of_the_script(script: BatchScript) -> Iterator[Finding]:
    """Find options of the training that stand before its script."""
    for launch in script.living:
        known = ALL_OPTIONS.get(launch.launcher_name)
        if known is None or launch.has_unknown_options or not launch.program:
            continue
        first = launch.program[0].text
        if re.fullmatch(r"python[\d.]*", first) and "no_python" not in launch.options:
            cure = "Leave it out: the launcher starts Python itself. With --no-python it starts any program."
            yield found("option-before-script", launch, f"{first} stands where the script belongs", cure=cure)
            return
        for name in launch.options:
            if len(name) > 1 and not any(one.startswith(name) for one in known):
                text = f"--{name} stands before {first[:40]}"
                yield found("option-before-script", launch, text, facts={"option": name})
                return


_FOR_GPUS = re.compile(
    r"(?i)\bcuda\b|\bdeepspeed\b|nvidia-smi|\bnccl\b|NCCL_|CUDA_|--gpus?\b|\bgpus?\b|apptainer exec --nv|--nv\b"
)


_GPU_NODES = re.compile(r"(?i)gpu|a100|h100|v100|cuda|dgx|gh200|mi[0-9]")


def unasked_gpus(script: BatchScript) -> Iterator[Finding]:
    """Find several processes for GPUs in a job that asks for none."""
    header = script.header
    sites = " ".join(header.value(name) or "" for name in ("partition", "constraint", "qos", "account", "reservation"))
    if not header.directives or script.asks_for_gpus or _GPU_NODES.search(sites) or not _FOR_GPUS.search(script.code):
        return
    if any("sbatch" in comment and re.search(r"--g(?:res|pus)", comment) for _, comment in script.comments):
        return  # its command line has them
    # A script in a container may be the training.
    held = [one for one in script.launches if one.layer("container") and not one.command.dead]
    for launch in (*script.living, *held):
        processes, container = processes_of(launch), launch.layer("container")
        several = processes > 1 if processes is not None else _counts_gpus(launch)
        has_gpus = container is not None and not {"--nv", "--rocm", "--gpus=all"}.isdisjoint(container.own.split())
        wants = several or has_gpus or _visible(launch) or _own_gpus(launch) or _wants_gpus(launch)
        if wants and "cpu" not in launch.options:
            what = f"{processes or 'several'} processes a node" if several else "the training uses GPUs"
            what = "srun asks for GPUs" if _own_gpus(launch) else what
            yield found("no-gpus", launch, f"{what}, and no directive asks for GPUs")
            return


def _wants_gpus(launch: LaunchedProgram) -> bool:
    """Return whether a launch says that it uses GPUs."""
    words = " ".join(word.text for word in launch.program)
    says = {"multi_gpu", "use_deepspeed", "use_fsdp", "gpu_ids"} & launch.options.keys()
    return (
        launch.launcher_name == "deepspeed"
        or bool(says)
        or re.search(r" --(?:num[-_])?n?gpus[= ][1-9]", words) is not None
    )


def _counts_gpus(launch: LaunchedProgram) -> bool:
    """Return whether a launch starts a process for each GPU that nvidia-smi lists."""
    value = option(launch.launcher, *option_names("ranks", of=launch.launcher_name)) if launch.launcher else None
    return value is not None and re.search(r"nvidia-smi|rocm-smi|device_count", value.commands()) is not None


def idle_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find a last command that runs on one node of several."""
    steps = [one for one in script.living[:-1] if one.srun is not None and one.outer is None]
    last = script.living[-1] if steps and script.request.several_nodes else None
    if last and last.is_python and not (last.srun or last.outer or last.command.background):
        yield found("nodes-idle", last, f"{last.name} runs on one of {script.request.nodes} nodes")


def several_nodes(script: BatchScript) -> Iterator[Finding]:
    """Find jobs of several nodes that use one."""
    training, nodes = script.training, script.usual_nodes
    if (nodes or 1) < 2 or not script.living or (script.shell.not_here and not any(one.launcher for one in training)):
        return
    if (alone := next(filter(is_horovod_alone, script.living), None)) is not None:
        yield found("no-srun", alone, f"--nodes={nodes}, and horovodrun without -H starts all on the first")
        return
    starts = any(STARTS_ON_NODES.fullmatch(one.name) and "substitution" not in one.within for one in script.commands)
    asks = any(launch.layer("srun", "mpirun") for launch in training) or re.search(r"\bsrun\b|hostfile", script.code)
    last = script.living[-1]
    if starts or asks or any(script.named("ray")) or option(last.launcher, "hostfile", "H", "host") is not None:
        return
    text = f"--nodes={nodes}, and {last.command.name} runs on the first alone"
    yield found("no-srun", last, text, Severity.WARNING if script.guesses_nodes else None)


def is_horovod_alone(launch: LaunchedProgram) -> bool:
    """Return whether a horovodrun learns of no other host: it asks LSF, and not Slurm."""
    mpi = launch.layer("mpirun")
    return mpi is not None and mpi.program == "horovodrun" and not launch.srun and not _OTHER_SLOTS & mpi.options.keys()


def bad_exit(script: BatchScript) -> Iterator[Finding]:
    """Find ranks that are left hanging when another has died."""
    reported = False
    for launch in script.work:
        if launch.srun is None:
            continue
        stated = launch.srun.options.get("kill-on-bad-exit")
        everywhere = launch.command.variables.values.get("SLURM_KILL_BAD_EXIT")
        if any(value is not None and value.text == "0" for value in (stated, everywhere)):
            yield found("kill-on-bad-exit-0", launch.step, "--kill-on-bad-exit=0")
        elif stated is None and everywhere is None and not reported and _may_hang(script, launch):
            reported = True
            yield found("no-kill-on-bad-exit", launch.step, "srun without --kill-on-bad-exit")


def _may_hang(script: BatchScript, launch: LaunchedProgram) -> bool:
    """Return whether a launch may have ranks that wait for one which has died elsewhere."""
    nodes, header = script.usual_nodes_of(launch), script.header
    if nodes is not None:
        by_task = launch.launcher is None
        return nodes > 1 or (by_task and (script.tasks_per_node_of(launch) or 1) > 1)
    ignored = any("nodes" in one.meant for one in header.ignored)
    several = (script.request.tasks or script.request.tasks_per_node or 2) > 1
    tasks = several and launch.launcher is None and header.last("ntasks", "ntasks-per-node") is not None
    states = launch.srun is not None and "nodes" in launch.srun.options
    return ignored or states or tasks or header.value("nodes") not in (None, "1")


def ray_starts(script: BatchScript) -> list[LaunchedProgram]:
    """Return the steps that start Ray on their nodes: the training runs in them."""
    return [one for one in script.launches if [word.text for word in one.program[:2]] == ["ray", "start"]]


def cpus(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that get one CPU."""
    name, each = "SRUN_CPUS_PER_TASK", script.request.cpus_per_task or 0
    if each < 2 or script.site.srun_inherits_cpus or any(one.name == name for one in script.assignments):
        return
    for launch in (*ray_starts(script), *script.work):
        stated = launch.srun is None or "cpus-per-task" in launch.srun.options or launch.environment(name) is not None
        if not stated and not launch.command.dead:
            yield found("srun-loses-cpus", launch.step, f"--cpus-per-task={each}, and srun does not have it")
            return


def threads(script: BatchScript) -> Iterator[Finding]:
    """Find ranks whose number of threads was not chosen."""
    chosen = any(script.assigned("OMP_NUM_THREADS"))
    for launch in () if chosen else script.training:
        if launch.launcher or (launch.srun is not None and script.starts_several(launch)):
            yield found("threads-unset", launch, "OMP_NUM_THREADS is not set")
            return


def hidden_peers(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that see one GPU each."""
    header, request = script.header, script.request
    for launch in script.training:
        srun = launch.srun
        if srun is None:  # the batch shell sees all GPUs of its node
            continue
        per_task = number_of(srun, "gpus-per-task") or request.gpus_per_task
        tasks = script.tasks_per_node_of(launch) or (request.tasks if request.nodes is None else None) or 1
        binding = option(srun, "gpu-bind")
        if per_task == 1 and tasks > 1 and not (binding.text if binding else header.value("gpu-bind")):
            line = launch.line if "gpus-per-task" in srun.options else header.line("gpus-per-task")
            text = f"--gpus-per-task=1 with {tasks} tasks{' a node' if request.nodes else ''}"
            yield Finding("gpus-per-task-hides-peers", line, text)
            return


_PREPARES = re.compile(
    r"(?i).*(?:prepare|download|preprocess|tokeni[sz]e_data|setup|install|convert)\w*\.(?:py|sh)|"
    r"(?-i:pip3?|conda|git|wget|curl|unzip|tar)"
)


def fans_out(script: BatchScript) -> Iterator[Finding]:
    """Find preparations that run once a task."""
    tasks = max(script.request.tasks or 1, script.request.nodes or 1)
    if tasks == 1 and (script.header.value("nodes") is None or script.request.nodes is not None):
        return
    for launch in script.launches:
        command, name = launch.command, launch.program[0].text if launch.program else ""
        if launch.srun is None or {"ntasks", "nodes", "ntasks-per-node"} & launch.srun.options.keys():
            continue
        by_rank = any(re.search(r"RANK|PROCID|LOCALID|NODEID", one.text) for one in command.conditions)
        prepares = _PREPARES.fullmatch(name) or [word.text for word in launch.program[1:2]] == ["preprocess"]
        if prepares and not by_rank and not {"substitution", "condition"} & set(command.within):
            yield found("srun-may-fan-out", launch, f"srun {name}: {tasks if tasks > 1 else 'several'} times")


def tasks_without_starter(script: BatchScript) -> int | None:
    """Return the number of a job's tasks where it has several and nothing starts them: then they are CPUs."""
    tasks = script.request.tasks_per_node or script.request.tasks or 1
    has_starter = re.search(r"\b(?:srun|mpirun|mpiexec|prun|ibrun)\b", script.code) is not None
    return tasks if tasks > 1 and not has_starter else None


def unused_tasks(script: BatchScript) -> Iterator[Finding]:
    """Find tasks that nothing starts."""
    tasks = tasks_without_starter(script)
    alone = (one for one in script.living if one.launcher is None and script.is_of_lightning(one))
    waiting = (one for one in alone if not script.hides_from_lightning(one))
    if tasks and not script.request.several_nodes and (first := next(waiting, None)) is not None:
        text = f"Lightning counts on the job's {tasks} tasks, and no srun starts them"
        yield found("nodes-disagree", first, text, cure="Start it with srun, with as many tasks on a node as devices.")
    elif tasks and any(not one.command.dead for one in script.work):
        yield Finding("tasks-unused", script.header.line("ntasks-per-node", "ntasks"), f"{tasks} tasks, and no srun")
