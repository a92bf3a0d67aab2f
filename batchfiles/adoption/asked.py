"""Directives of a batch file as keys of a job file and a cluster file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from batchfiles.adoption.account import IN_CONTAINER, Account, Where
from batchfiles.adoption.decisions import can_be_stated, tells_place
from batchfiles.adoption.start import AdoptedStart, is_once_per_node
from batchfiles.bash.expansion import Word
from batchfiles.bash.values import Value, number
from batchfiles.slurm.directives import Directive
from batchfiles.slurm.launches import LaunchedProgram, number_of, option
from batchfiles.slurm.layers import srun_options
from batchfiles.slurm.request import GPU_NAMES, accelerator_gres
from batchfiles.slurm.script import BatchScript
from trainjob.cluster import slurm_text
from trainjob.contract.programs.secret_names import holds_secret, is_secret_variable
from trainjob.contract.programs.slurm_options import OPTIONS, refusal

# What a job does by itself in place of options that its plan decides.
_INSTEAD = {
    "output": "trainjob logs prints what it wrote, by rank",
    "error": "trainjob logs prints what it wrote, by rank",
    "open-mode": "the log is appended over attempts",
    "requeue": "the job is requeued at its time limit: whether it goes on there is up to the program",
    "parsable": "trainjob reads the job's id",
    "propagate": "the ranks get the nodes' limits",
    "gpu-bind": "each rank is given its GPU",
    "gpus-per-socket": "each rank is given its GPU",
    "accel-bind": "each rank is bound to the CPUs beside its GPU",
}
_ADDED_UP = ("mail-type",)  # of these, sbatch takes each that a file states
_MARGIN_S = 120  # between the signal and the time limit, where a cluster file states none
_UNITS = {"": 1 / 1024, "M": 1 / 1024, "G": 1, "T": 1024, "MB": 1 / 1024, "GB": 1, "TB": 1024}
_PLACEHOLDER = re.compile(r"[<{\[].*[>}\]]|.*\bx{3,}.*|YOUR.*", re.IGNORECASE)


@dataclass
class Keys:
    """The keys of both files, in the order in which they are written, and comments for some of them."""

    job: dict[str, object] = field(default_factory=dict)
    cluster: dict[str, object] = field(default_factory=dict)
    comments: dict[tuple[str, ...], str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)  # words of bash, for the prologue

    def under(self, key: str) -> dict[str, object]:
        """Return a mapping of the cluster file, made if need be."""
        found = self.cluster.setdefault(key, {})
        assert isinstance(found, dict)  # noqa: S101 - the keys that this module fills
        return found

    def of_cluster(self, key: str) -> dict[str, object]:
        """Return a mapping of the cluster file; empty if there is none."""
        return self.under(key) if key in self.cluster else {}

    def of_job(self, key: str) -> dict[str, object]:
        """Return a mapping of the job file, made if need be."""
        found = self.job.setdefault(key, {})
        assert isinstance(found, dict)  # noqa: S101 - as above
        return found


def read_directives(
    script: BatchScript, launch: LaunchedProgram, start: AdoptedStart, keys: Keys, account: Account
) -> None:
    """Fill `keys` with what the directives and srun ask for."""
    keys.cluster["kind"] = "slurm"
    keys.cluster["nodes"] = _nodes(script, launch, start, keys)
    names = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
    asks = any(script.header.value(name) for name in names) or option(launch.srun, *names) is not None
    if start.gpus_beyond_ranks:
        keys.cluster["request"] = "none"
        if asks and not any(script.header.value(name) for name in ("gres", "gpus-per-node")):
            keys.under("directives")["gres"] = f"gpu:{start.gpus}"
    elif script.header.value("gpus-per-node") is not None and not accelerator_gres(
        script.header, script.header.value("gres")
    ):
        keys.cluster["request"] = "gpus-per-node"
    elif start.gpus and not asks:
        keys.cluster["request"] = "none"
    last = {one.name: one for one in script.header.directives}
    for one in script.header.directives:
        written = one.value if one.written is None else one.written
        text = f"{'#SBATCH' if one.line else 'sbatch'} --{one.name}{'' if written is None else f'={written}'}"
        if one is not last[one.name] and one.name not in _ADDED_UP:
            account.note(Where.NOWHERE, one.line, text, f"sbatch takes the last --{one.name}")
            continue
        where, what = _became(one, start, keys)
        account.note(where, one.line, text, what)
        if one.written is not None:
            account.changes.append(f"line {one.line}: sbatch expands no {one.written}; the job takes {one.value}")
    for ignored in script.header.ignored:
        if not ignored.on_purpose:
            account.note(
                Where.LOST, ignored.line, ignored.text.strip(), f"sbatch does not read it either: it {ignored.why}"
            )
    _fit_margin(script, keys, account)
    _read_srun(script, launch, keys, account)
    if start.per == "rank" and launch.srun is not None:
        _keep_devices_apart(script, launch, start, keys)


def _fit_margin(script: BatchScript, keys: Keys, account: Account) -> None:
    """Let the signal come after the job's beginning, however short its time limit is."""
    limit_s = slurm_text.seconds(str(keys.job.get("time_limit", "UNLIMITED")))
    if limit_s is None or limit_s > int(str(keys.of_cluster("time_limit_signal").get("margin_s", _MARGIN_S))):
        return
    margin_s = max(1, limit_s // 4)
    keys.cluster["time_limit_signal"] = {"margin_s": margin_s}
    if (stated := script.header.value("signal")) is not None:
        what = f"the limit is {limit_s} s: ranks get USR1 {margin_s} s before it"
        account.note(Where.LOST, script.header.line("signal"), f"--signal={stated}", what)


def _keep_devices_apart(script: BatchScript, launch: LaunchedProgram, start: AdoptedStart, keys: Keys) -> None:
    """Let each rank see its own GPU alone, as device 0, where the file does so."""
    stated = option(launch.srun, "gpu-bind")
    bound = stated.text if stated is not None and stated.known else script.header.value("gpu-bind")
    if bound == "none":
        return
    per_task = number_of(launch.srun, "gpus-per-task") or script.request.gpus_per_task
    if per_task is not None and start.ranks > 1:
        keys.under("srun")["gpus-per-task"] = per_task
    if bound:
        keys.under("srun")["gpu-bind"] = bound


def _nodes(script: BatchScript, launch: LaunchedProgram, start: AdoptedStart, keys: Keys) -> dict[str, object]:
    nodes: dict[str, object] = {"count": start.nodes}
    if start.gpus:
        nodes |= {"accelerator": "gpu", "accelerators": start.gpus}
        kind, name = _gres(script, launch)
        nodes |= {"type": kind} if kind else {}
        nodes |= {"gres": name} if name != "gpu" else {}
    nodes["cpus"] = max(start.cpus or 1, start.ranks)
    if start.cpus is None:
        keys.comments["nodes", "cpus"] = "the file asks for none: fill in what a node has"
    elif start.cpus < start.ranks:
        keys.comments["nodes", "cpus"] = f"each rank needs one, and the file asks for {start.cpus}"
    memory = _memory_gb(script.header.value("mem") or "")
    if memory is not None:
        nodes["memory_gb"] = memory
    return nodes


def _memory_gb(text: str) -> int | None:
    """Return a whole number of GB; None for anything else, 0 (all of the node) included."""
    match = re.fullmatch(r"([0-9]{1,9})([A-Za-z]*)", text)
    if match is None or match[2].upper() not in _UNITS:
        return None
    gb = int(match[1]) * _UNITS[match[2].upper()]
    return int(gb) if gb >= 1 and gb == int(gb) else None


def _gres(script: BatchScript, launch: LaunchedProgram) -> tuple[str | None, str]:
    """Return the type of the GPUs and the name of their GRES, from gpu:a100:4, a100:4 or a100."""
    stated = option(launch.srun, "gres")
    for text in (script.header.value("gres"), stated.text if stated is not None and stated.known else None):
        name, *rest = accelerator_gres(script.header, text).split(":")
        if name and rest:
            kind = next((word for word in rest if not word.partition("(")[0].isdigit()), None)
            return kind, name
    for name in ("gpus-per-node", "gpus-per-task", "gpus"):
        value = script.header.value(name)
        if value and not value.partition(":")[0].isdigit() and "$" not in value:
            return value.partition(":")[0], "gpu"
    return None, "gpu"


def _became(one: Directive, start: AdoptedStart, keys: Keys) -> tuple[Where, str]:
    """Fill in what a directive says, and return what became of it."""
    name, value = one.name, one.value
    row = OPTIONS.get(name)
    decided_by = row.directive if row is not None and row.of != "srun" else "plan" if name in _INSTEAD else ""
    if value is not None and "$" in value and decided_by not in ("plan", "default"):
        return Where.LOST, "neither sbatch nor trainjob expands variables in directives"
    if value == "":
        return Where.NOWHERE, "it is empty"
    special = _SPECIAL.get(name)
    if special is not None:
        return special(start, keys, one)
    if name in _INSTEAD:
        return Where.TRAINJOB, _INSTEAD[name]
    if decided_by == "default" or name in ("nodes", "ntasks", "ntasks-per-node"):
        return _counted(one, start)
    if name in _OF_STEP:
        return Where.LOST, _OF_STEP[name]
    if decided_by == "container":
        return Where.CLUSTER, "container"
    if decided_by in ("plan", "never", "unneeded"):
        return Where.LOST, "a job is submitted without it"
    refused = refusal(one.spelled) if len(one.spelled) > 1 else None  # a letter is no beginning of a long name
    if refused is not None and (row is not None or refused[1]):
        return Where.LOST, refused[0]
    if row is None or row.of == "plugin":
        own = keys.cluster.setdefault("plugin_options", [])
        assert isinstance(own, list)  # noqa: S101 - as above
        own.append(name)
        return _to(keys, one, job=False)
    return _to(keys, one, job=decided_by != "site")


def _counted(one: Directive, start: AdoptedStart) -> tuple[Where, str]:
    name, is_task = one.name, one.name in ("ntasks", "ntasks-per-node")
    if is_task and start.ranks == 1 and one.value == str(start.cpus) != "1":  # nothing starts them: they are CPUs
        return Where.CLUSTER, f"nodes: cpus: {start.cpus}"
    if name == "cpus-per-gpu":
        return Where.CLUSTER, "nodes: cpus"
    if name in ("gpus", "gpus-per-task") and start.gpus:
        return Where.CLUSTER, f"nodes: accelerators: {start.gpus}"
    return Where.JOB, f"instances: {start.instances}"


def _to(keys: Keys, one: Directive, *, job: bool) -> tuple[Where, str]:
    value: object = True if one.value is None else int(one.value) if _is_number(one.value) else one.value
    directives = keys.of_job("directives") if job else keys.under("directives")
    before = directives.get(one.name) if one.name in _ADDED_UP else None
    directives[one.name] = value if before is None else f"{before},{value}"
    if one.value is not None and _PLACEHOLDER.fullmatch(one.value) and not job:
        keys.comments["directives", one.name] = "a placeholder: fill it in"
    return (Where.JOB if job else Where.CLUSTER), f"directives: {one.name}"


def _is_number(text: str) -> bool:
    return number(text) is not None and (text == "0" or not text.startswith("0"))


_Special = Callable[[AdoptedStart, Keys, Directive], tuple[Where, str]]


def _name(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    value = (one.value or "").replace("/", "-")
    keys.job = {"name": value, **keys.job} if value else keys.job
    return Where.JOB, "name"


def _time(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    if not re.fullmatch(
        r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED|INFINITE", one.value or ""
    ):
        return Where.LOST, "no time as Slurm writes it"
    limit_s = slurm_text.seconds(one.value or "")
    if limit_s == 0:
        return Where.NOWHERE, "0 is no limit, and neither is none"
    keys.job["time_limit"] = one.value
    return Where.JOB, "time_limit"


def _setting(name: str) -> _Special:
    def fill(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
        keys.job[name] = one.value
        return Where.JOB, name

    return fill


def _memory(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    if _memory_gb(one.value or "") is not None:
        return Where.CLUSTER, "nodes: memory_gb"
    return _to(keys, one, job=False)


def _gres_directive(start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    entries = [entry for entry in (one.value or "").split(",") if entry]
    if keys.cluster.get("request") == "gpus-per-node":
        return _to(keys, one, job=False)
    if start.gpus and len(entries) == 1 and not start.gpus_beyond_ranks:
        return Where.CLUSTER, f"nodes: accelerators: {start.gpus}"
    if start.gpus:
        keys.cluster["request"] = "none"  # one option can't be stated twice
    return _to(keys, one, job=False)


def _gpus_per_node(start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    if start.gpus_beyond_ranks:
        return _to(keys, one, job=False)
    return Where.CLUSTER, f"nodes: accelerators: {start.gpus}, request: gpus-per-node"


def _signal(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?(\w+)(?:@(\d+))?", one.value or "")
    if match is None:
        return Where.LOST, "no signal as Slurm writes it"
    margin = int(match[2] or 60)
    if margin != _MARGIN_S:
        keys.cluster["time_limit_signal"] = {"margin_s": margin}
    signal = f"USR1 {margin} s before the time limit"
    if match[1] not in ("USR1", "10"):
        return Where.LOST, f"ranks get {signal}, and not {match[1]}: handle USR1"
    to_batch = (one.value or "").startswith("B")
    return Where.CLUSTER, f"{signal}{', to the ranks themselves' if to_batch else ''}"


def _chdir(_start: AdoptedStart, _keys: Keys, one: Directive) -> tuple[Where, str]:
    if one.value in (".", "./"):
        return Where.TRAINJOB, "ranks start in a copy of the folder in which you submit"
    return Where.LOST, f"submit in {one.value}: ranks start in a copy of that folder"


def _export(_start: AdoptedStart, keys: Keys, one: Directive) -> tuple[Where, str]:
    names, given = _exported(one.value or "ALL")
    stated = {name: value for name, value in given.items() if can_be_stated(name)}
    if stated:
        keys.of_job("env").update(stated)
    refused = [name for name in given if name not in stated and not tells_place(name)]
    if refused:
        return Where.LOST, f"env of a job may not have {', '.join(refused)}"
    if not names <= {"NONE"}:
        return Where.LOST, "jobs get no variables of the submitting shell: name those that it needs in env"
    if stated:
        return Where.JOB, "; ".join(f"env: {name}" for name in stated)
    return Where.TRAINJOB, "jobs get no variables of the submitting shell"


def _exported(text: str) -> tuple[set[str], dict[str, str]]:
    """Return what --export=NAME,NAME=VALUE names without a value, and the variables with one."""
    pairs = [one.partition("=") for one in text.split(",")]
    given = {name: value for name, equals, value in pairs if equals}
    return {name for name, equals, _ in pairs if not equals}, given


def exported_to_ranks(launch: LaunchedProgram) -> dict[str, str]:
    """Return the variables of srun's --export=ALL,NAME=VALUE; none if it takes others away, or env may not have one."""
    stated = option(launch.srun, "export")
    names, given = _exported(stated.text if stated is not None and stated.known else "")
    if names != {"ALL"} or not all(can_be_stated(name) for name in given):
        return {}
    if any(is_secret_variable(name) or holds_secret(value) for name, value in given.items()):
        return {}
    return given


_SPECIAL: dict[str, _Special] = {
    "job-name": _name,
    "time": _time,
    "time-min": _setting("time_min"),
    "hint": _setting("hint"),
    "array": _setting("array"),
    "mem": _memory,
    "cpus-per-task": lambda start, _keys, _one: (Where.CLUSTER, f"nodes: cpus: {start.cpus}"),
    "gres": _gres_directive,
    "gpus-per-node": _gpus_per_node,
    "signal": _signal,
    "chdir": _chdir,
    "export": _export,
}


_OF_STEP = {
    "container-name": "each attempt has a container of its own, without a name",
    "container-mount-home": "a job decides whether the home is mounted",
    "container-remap-root": "a job decides as which user ranks run",
    "no-container-mount-home": "a job decides whether the home is mounted",
    "input": "ranks read no file as their input",
    "volume": "a cluster file has no volumes of shifter",
}
_OF_CONTAINER = ("container-image", "container-mounts", "container-workdir", "environment", "image")


def _read_srun(script: BatchScript, launch: LaunchedProgram, keys: Keys, account: Account) -> None:
    """Keep srun's own options, and say which ones a job does without."""
    layer = launch.srun
    if layer is None:
        return
    account.settle(layer.words[:1])
    by_itself: list[Word] = []
    for name, value, words, _ in srun_options(layer.words):
        became = _of_step(script, launch, keys, name, value)
        if became is not None:
            shown = f"srun --{name}" + (f"={value.text}" if value.text else "")
            account.note(became[0], launch.step.place, shown, became[1], words=words)
        elif name in _OF_CONTAINER:
            account.set_apart(IN_CONTAINER, words)
        else:
            by_itself += words
    account.note_decided(launch.step.place, "srun", by_itself, "a job's own srun starts what it plans")
    if "hint" in keys.job and "cpu-bind" in keys.of_cluster("srun"):
        del keys.job["hint"]
        account.note(Where.LOST, script.header.line("hint"), "--hint", "srun takes --cpu-bind or --hint")


def _of_step(
    script: BatchScript, launch: LaunchedProgram, keys: Keys, name: str, value: Value
) -> tuple[Where, str] | None:
    """Keep an option of srun, or return what became of it; None if a job's own srun, or its container, has it."""
    text = value.text
    kept_by = OPTIONS[name].step if name in OPTIONS else "lost"
    if name in _OF_STEP:
        return Where.LOST, _OF_STEP[name]
    if name == "gres" and text != script.header.value(name):
        entries = [entry for entry in text.split(",") if entry.partition(":")[0].lower() not in (*GPU_NAMES, "")]
        if entries:
            return Where.LOST, f"ranks are started without {', '.join(entries)}"
    if name == "kill-on-bad-exit" and text == "0":
        return Where.LOST, "a job ends when one of its ranks fails"
    if name == "nodelist" and is_once_per_node(launch):
        return Where.TRAINJOB, "a launcher starts on each node"
    if name == "export" and (given := exported_to_ranks(launch)):
        return Where.JOB, "; ".join(f"env: {one}" for one in given)
    if name == "cpu-bind" and text in ("v", "verbose", "q", "quiet"):
        return Where.NOWHERE, "it only prints"
    is_stated = script.header.value(name) not in (None, "") and script.header.value(name) == text
    if kept_by in ("decided", "replaced", "container") or is_stated or (name == "export" and text in ("", "ALL")):
        return None
    if kept_by != "kept" or not value.known or "\n" in text:
        return Where.LOST, "ranks are started without it"
    keys.under("srun")[name] = int(text) if _is_number(text) else text or True
    return Where.CLUSTER, f"srun: {name}"
