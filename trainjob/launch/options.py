"""The launcher's command line.

Loading argparse and its translations takes a tenth of a launcher's start. So it is loaded for --help and
for mistakes only: what job scripts say is read without it, from the same table.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from trainjob.contract import environment

# Seconds between TERM and KILL, where the cluster file doesn't say.
GRACE_S = 30.0
# Seconds between two samples of what a rank uses, where the cluster file does not say.
EVERY_S = 30.0


class Options(NamedTuple):
    """The launcher's arguments. A field with a default is an option, which FLAGS explains."""

    run_dir: str
    command: List[str]
    launcher: str
    instances: int = 1
    ranks_per_node: int = 0
    accelerator: str = "cpu"
    working_folder: str = "code"
    port: int = 0
    interface: str = ""
    data_interface: str = ""
    binding: str = "numa"
    token: str = ""
    secrets_file: str = ""
    parent: int = 0
    ranks_in_containers: bool = False
    grace_s: float = GRACE_S
    node_check: str = "off"
    usage_every_s: float = EVERY_S
    command_of_job: bool = False
    environment_of_job: str = ""
    share: str = ""


class _Flag(NamedTuple):
    help: Optional[str] = None
    choices: Tuple[str, ...] = ()


FLAGS = {
    "launcher": _Flag(choices=("local", *environment.LAUNCHER_NAMES)),
    "instances": _Flag("ranks to start (launcher local)"),
    "ranks_per_node": _Flag("ranks that the command starts on this node by itself; 0: it is one rank"),
    "accelerator": _Flag(choices=("cpu", "gpu", "ipu")),
    "working_folder": _Flag("where ranks start, below RUN_DIR"),
    "port": _Flag("rendezvous port; 0: choose a free one"),
    "interface": _Flag("network interface over which ranks meet"),
    "data_interface": _Flag("interfaces for data, or a pattern of NCCL's: ^docker,lo"),
    "binding": _Flag("bind ranks next to their GPUs", ("numa", "none")),
    "token": _Flag("the word that the job script wrote into RUN_DIR"),
    "secrets_file": _Flag("NAME=VALUE lines for the ranks' environment"),
    "parent": _Flag("process with which to end (launcher local)"),
    "ranks_in_containers": _Flag("ranks end when their input closes"),
    "grace_s": _Flag("seconds between TERM and KILL"),
    "node_check": _Flag("check this host before ranks start", ("on", "off")),
    "usage_every_s": _Flag("seconds between samples of use"),
    # mpirun would treat a word ":" of a user's command as its own; job.json carries every word as it is.
    "command_of_job": _Flag("run the command in job.json"),
    "environment_of_job": _Flag("comma-separated names whose values job.json has"),
    "share": _Flag("the part of this host that its ranks have together: 6+2/8"),
}
_DEFAULTS: Dict[str, Any] = {"launcher": "", **Options._field_defaults}


def parse(arguments: Sequence[str]) -> Options:
    """Return the parsed words. A mistake ends the process with a line that names it."""
    # At the first --: argparse would remove a second one from the user's own command.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, command = list(arguments[:at]), list(arguments[at + 1 :])
    options = _plain(own, command)
    return _by_argparse(own, command) if options is None else options


def _plain(own: List[str], command: List[str]) -> Optional[Options]:
    """Return the options if the words are only `--name VALUE` pairs and RUN_DIR without a mistake, else None."""
    given: Dict[str, Any] = {}
    places: List[str] = []
    words = iter(own)
    for word in words:
        if not word.startswith("-"):
            places.append(word)
            continue
        name = word[2:].replace("-", "_")
        if not word.startswith("--") or name not in FLAGS:
            return None
        if _DEFAULTS[name] is False:
            given[name] = True
            continue
        value = next(words, "-")
        if value.startswith("-") or value not in (FLAGS[name].choices or (value,)):
            return None
        try:
            given[name] = type(_DEFAULTS[name])(value)
        except ValueError:
            return None
    if len(places) != 1 or "launcher" not in given or not (command or given.get("command_of_job")):
        return None
    return Options(places[0], command, **given)


def _by_argparse(own: List[str], command: List[str]) -> Options:
    import argparse

    usage = "launch [options] RUN_DIR -- COMMAND…"
    what = "Starts the ranks of one host and stays until all have ended."
    parser = argparse.ArgumentParser(prog="launch", usage=usage, description=what, allow_abbrev=False)
    parser.add_argument("run_dir", metavar="RUN_DIR")
    for name, flag in FLAGS.items():
        words: Dict[str, Any] = {"help": flag.help, "default": _DEFAULTS[name], "required": name == "launcher"}
        if _DEFAULTS[name] is False:
            words.update(action="store_true")
        else:
            words.update(type=type(_DEFAULTS[name]), choices=flag.choices or None)
        parser.add_argument("--" + name.replace("_", "-"), **words)
    found = vars(parser.parse_args(own))
    if not command and not found["command_of_job"]:
        parser.error("a command is expected after --")
    return Options(command=command, **found)
