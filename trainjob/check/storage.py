"""Checks of files and folders on the machines: data set, run directories, secrets, initial weights."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from trainjob.check import memory, probe, requirements
from trainjob.check.context import Context
from trainjob.contract import package
from trainjob.contract.errors import Problem, UserError, of_error
from trainjob.data import manifest

# Reading a whole data set takes long.
_READ_S = 1800.0
# As the node check demands before the first checkpoint.
LEAST_FREE_MB = 1_024
_SUMS = package.program(__file__, "sums.sh")


def data(context: Context) -> Iterator[Problem]:
    """Yield machines that lack the data set."""
    name, folder = requirements.data_name(context.request), context.request.cluster.data_dir
    cluster = context.request.plan.cluster
    if name is not None and folder is None:
        text = f"the task reads data set {name}, and cluster {cluster} has no data_dir"
        yield Problem("data", text, "Add data_dir to its file: the folder of prepared data sets on every host")
        return
    where = context.where(lambda facts: facts.get("data") == "no")
    if where and name is not None:
        from trainjob.data.prepare import WAYS  # slow to load

        text = f"data set {name} is not prepared on {where}: there is no {requirements.manifest_path(context.request)}"
        cure = f"Run there: trainjob data prepare {name} --data-dir {shlex.quote(str(folder))}"
        if name not in WAYS:
            cure = f"Copy it to {folder}/{name}; trainjob data prepare makes {', '.join(WAYS)}"
        elif where == "this machine":
            cure = f"Run: trainjob data prepare {name} --cluster {cluster}"
        yield Problem("data", text, cure)


def damaged_data(context: Context) -> Iterator[Problem]:
    """Yield files of the data set that differ from those prepared. Reads the whole data set on every host."""
    name = requirements.data_name(context.request) or ""
    folder = f"{context.request.cluster.data_dir}/{name}"
    for answer in context.answers:
        if answer.facts.get("data", "no") == "no":
            continue
        shown = answer.target.run(["-c", _SUMS, "sh", "show", folder])
        try:
            files = manifest.parse(shown.text, f"{folder}/{manifest.FILE_NAME}").splits.values()
        except UserError as error:
            yield of_error("data", error)
            continue
        facts = [fact for split in files for fact in split.files.values()]
        sums = "".join(dict.fromkeys(f"{fact.sha256}  {fact.file}\n" for fact in facts))
        ended = answer.target.run(["-c", _SUMS, "sh", "sums", folder], stdin=sums.encode(), timeout_s=_READ_S)
        for line in ended.text.splitlines():
            if line.endswith(("FAILED", "FAILED open or read")):
                file = line.partition(":")[0]
                text = f"data set {name} on {probe.listed([answer])}: {file} is not the file that was prepared"
                cure = f"Remove {shlex.quote(folder)} and prepare it again: {manifest.how_to_prepare(name)}"
                yield Problem("data", text, cure)


def runs_dir(context: Context) -> Iterator[Problem]:
    """Yield machines on which run directories can't be created."""
    folder = context.request.cluster.runs_folder
    is_named = bool(requirements.host_names(context.request))
    for fact, where in context.by_value("runs-dir"):
        state, _, at = fact.partition(" ")
        if state == "file":
            yield Problem("runs-dir", f"runs_dir {folder} on {where}: {at} is not a folder", "Set runs_dir to a folder")
        elif state == "read-only":
            cure = "Set runs_dir to a folder that you may write, on storage that all nodes share"
            yield Problem("runs-dir", f"runs_dir {folder} on {where}: you have no permission to write in {at}", cure)
        elif state == "relative":
            text = f"runs_dir {folder} on {where} is not an absolute path"
            yield Problem("runs-dir", text, "Write it with a leading / or ~/")
        elif state == "absent" and is_named:
            cure = "Create it, on storage that all hosts share"
            yield Problem("runs-dir", f"runs_dir {folder} does not exist on {where}", cure)


def free_space(context: Context) -> Iterator[Problem]:
    """Yield machines whose disk of run directories has no room for the job's checkpoints and logs."""
    request, needed_mb, why = context.request, float(LEAST_FREE_MB), "logs and checkpoints"
    one_mb = memory.checkpoint_mb(context)
    if one_mb is not None:
        # The oldest is removed once the newest is there.
        count = (request.job.keep_checkpoints + 1) * max(1, len(request.elements))
        needed_mb += one_mb * count
        why = (
            f"logs and {count} checkpoints of {max(1, round(one_mb)):,} MB (keep_checkpoints and the one being written)"
        )

    def is_short(facts: Mapping[str, str]) -> bool:
        free_mb = facts.get("runs-mb", "")
        return free_mb.isdigit() and int(free_mb) < needed_mb

    if where := context.where(is_short):
        free = min(int(mb) for mb, _ in context.by_value("runs-mb") if mb.isdigit())
        text = f"runs_dir {request.cluster.runs_folder} on {where} has {free:,} MB free, and {why} need "
        text += f"{needed_mb:,.0f} MB"
        cure = "Free some space (trainjob prune removes old runs), keep fewer checkpoints, or set runs_dir elsewhere"
        yield Problem("disk", text, cure)


def other_users(context: Context) -> Iterator[Problem]:
    """Yield hosts to which jobs log in as another user than the one who submits, to whom run directories belong."""
    users = list(context.by_value("user"))
    own = context.machine.run(["id", "-u"], check=False).text.strip() if users else ""
    for user, where in users:
        number, _, name = user.partition(" ")
        if own and number != own:
            text = f"jobs log in to {where} as {name} (user id {number}), and a run directory belongs to user id {own}"
            cure = "Log in to all hosts as the user who submits (User in ~/.ssh/config), with the same id everywhere"
            yield Problem("runs-dir", f"{text}: it can't be read there", cure)


def open_runs_dir(context: Context) -> Iterator[Problem]:
    """Yield machines on which anybody can replace a run directory."""
    for folder, where in context.by_value("runs-dir-open"):
        text = f"runs_dir {context.request.cluster.runs_folder} on {where}: anybody can replace what is in {folder}"
        at = shlex.quote(folder)
        yield Problem(
            "runs-dir-open", text, f"Run: chmod +t {at} (or o-w), or set runs_dir to a folder that only you can write"
        )
    for link, where in context.by_value("runs-dir-link"):
        text = f"runs_dir {context.request.cluster.runs_folder} on {where}: {link} is another user's link in a folder"
        yield Problem("runs-dir-open", f"{text} where everybody may write", "Set runs_dir to a folder of your own")


def secrets(context: Context) -> Iterator[Problem]:
    """Yield machines on which ranks could not use the secrets file. The check reads no value of it."""
    path = context.request.cluster.secrets_file
    for state, where in context.by_value("secrets"):
        name = f"secrets_file {path} on {where}"
        if state == "missing":
            cure = "Create it with one NAME=VALUE per line, or remove the key"
            yield Problem("secrets", f"{name} does not exist", cure)
        elif state == "folder":
            yield Problem("secrets", f"{name} is not a file", "Give the path of a file with NAME=VALUE lines")
        elif state == "unreadable":
            yield Problem("secrets", f"{name} can't be read", "Make it a file that you own and can read")
        elif not state.endswith("------"):
            bits = "".join("0" if letter == "-" else "1" for letter in state[1:10])
            text = f"{name} has mode 0{int(bits, 2):03o}: others can read it, and it must have mode 0600"
            there = "" if where == "this machine" else " there"
            yield Problem("secrets", text, f"Run{there}: chmod 600 {path}")
    for numbers, where in context.by_value("secrets-malformed"):
        for number in numbers.split():
            text = f"secrets_file {path} on {where}, line {number}: expected NAME=VALUE"
            yield Problem("secrets", text, "Correct the line, or begin it with #")


def staging_disk(context: Context) -> Iterator[Problem]:
    """Yield machines on which the data set can't be staged."""
    for state, where in context.by_value("stage"):
        wrong = "is not a folder" if state == "absent" else "is a folder that you may not write"
        text = f"stage: {context.request.job.stage} {wrong} on {where}"
        yield Problem("stage", text, "Give a folder on a disk of every host, or leave out --stage")


def first_weights(context: Context) -> Iterator[Problem]:
    """Yield machines without the file of initial weights."""
    if where := context.where(lambda facts: facts.get("init-from") == "no"):
        text = f"init_from: {context.request.job.init_from} is not on {where}"
        yield Problem("init-from", text, "Give a safetensors file: trainjob export RUN -o FILE writes one")


def network(context: Context) -> Iterator[Problem]:
    """Yield machines without the network on which ranks meet."""
    if where := context.where(lambda facts: facts.get("network") == ""):
        text = f"there is no network {context.request.cluster.network.interface} on {where}"
        yield Problem("network", text, "Set network.interface to one that all hosts have, by name or as a CIDR")


def port(context: Context) -> Iterator[Problem]:
    """Yield the job's port if another program on this machine uses it."""
    number = context.request.cluster.network.port
    if not number:
        return
    from trainjob.contract import ports  # loads sockets

    if not ports.is_free(number):
        yield Problem(
            "port",
            f"network.port is {number}, and another program on {ports.LOOPBACK} uses it",
            "End that program, or remove network.port from the cluster file, and a free port is chosen",
        )
