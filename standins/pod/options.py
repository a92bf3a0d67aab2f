"""poprun's options: those of the PopDist and PopRun User Guide, and those seen in published invocations."""

from __future__ import annotations

import difflib
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from standins.pod import Refused

TRUE, FALSE = ("1", "yes", "on", "true"), ("0", "no", "off", "false")


class Option(NamedTuple):
    """One option. `default` is the guide's; an option that is not `honoured` has no meaning on a CPU."""

    kind: str  # flag | bool | int | text | list
    default: Optional[str] = None
    honoured: bool = True


OPTIONS: Dict[str, Option] = {
    "help": Option("flag"),
    "version": Option("flag"),
    "version-format": Option("text", "text", honoured=False),
    "import-config": Option("text"),
    "export-config": Option("text"),
    "overwrite-config": Option("bool", "0"),
    "verbose": Option("flag"),
    "vv": Option("flag"),
    "host": Option("text"),
    "num-replicas": Option("int", "1"),
    "num-instances": Option("int", "1"),
    "ipus-per-replica": Option("int", "1"),
    "num-ilds": Option("int"),
    "vipu-server-host": Option("text", "localhost"),
    "vipu-server-port": Option("int", "8090"),
    "vipu-server-timeout": Option("int", "120"),
    "vipu-partition": Option("text"),
    "vipu-partition-attempts": Option("int", "1"),
    "vipu-cluster": Option("text"),
    "vipu-allocation": Option("text"),
    "update-partition": Option("bool", "0"),
    "reset-partition": Option("bool"),
    "remove-partition": Option("bool", "1"),
    "executable-cache-path": Option("text"),
    "mpi-global-args": Option("list"),
    "mpi-local-args": Option("list"),
    "instance-mpi-local-args": Option("list"),
    "numa-aware": Option("bool", honoured=False),
    "process-placement": Option("text", honoured=False),
    "print-topology": Option("bool", "0"),
    "only-output-from-instance": Option("int"),
    "offline-mode": Option("bool", "0"),
    "sync-type": Option("text"),
    "host-subnet": Option("text", honoured=False),
    "synchronise-python-venv": Option("text", honoured=False),
    "synchronise-poplar-sdk": Option("text", honoured=False),
    "distribute-ssh-key": Option("flag", honoured=False),
    "allow-run-as-root": Option("bool"),
}
SHORT = {"-v": "verbose", "-vv": "vv", "-H": "host", "-h": "help"}


class Options:
    """The options of one command line, and the program behind them."""

    def __init__(self, values: Dict[str, List[str]], program: List[str]) -> None:
        self.values = values
        self.program = program

    def text(self, name: str) -> Optional[str]:
        """Return the last value given, else the default."""
        values = self.values.get(name)
        return values[-1] if values else OPTIONS[name].default

    def all(self, name: str) -> List[str]:
        """Return every value given, in order."""
        return self.values.get(name, [])

    def number(self, name: str) -> Optional[int]:
        """Return the value as a whole number; None if there is none. Raises Refused."""
        text = self.text(name)
        if text is None:
            return None
        if not text.lstrip("-").isdigit():
            raise Refused("option --%s: read '%s', expected a whole number" % (name, text))
        return int(text)

    def counted(self, name: str) -> int:
        """Return a whole number of at least 1. Raises Refused."""
        value = self.number(name)
        if value is None or value < 1:
            raise Refused("option --%s: read %s, expected at least 1" % (name, value))
        return value

    def choice(self, name: str) -> Optional[bool]:
        """Return yes or no; None if the option is not given and has no default. Raises Refused."""
        text = self.text(name)
        if text is None:
            return None
        if text.lower() not in TRUE + FALSE:
            raise Refused("option --%s: read '%s', expected yes or no (or on, off, 1, 0)" % (name, text))
        return text.lower() in TRUE

    def is_on(self, name: str) -> bool:
        """Return whether the option is given, or on by default."""
        return bool(self.choice(name))

    def without_meaning(self) -> List[str]:
        """Return the options given that have no effect here."""
        return [name for name in self.values if not OPTIONS[name].honoured]


def parse(words: List[str]) -> Options:
    """Return the options of a command line. Raises Refused for one that poprun does not have."""
    values: Dict[str, List[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, value = _name(word)
        values.setdefault(name, []).append(_value(name, value, rest))
    return Options(values, rest)


def _name(word: str) -> Tuple[str, Optional[str]]:
    flag, equals, value = word.partition("=")
    name = SHORT.get(flag, flag[2:] if flag.startswith("--") else flag)
    if name not in OPTIONS:
        close = difflib.get_close_matches(name, list(OPTIONS), n=1)
        meant = ": is --%s meant?" % close[0] if close else ""
        raise Refused("unrecognised option '%s'%s" % (flag, meant))
    return name, value if equals else None


def _value(name: str, value: Optional[str], rest: List[str]) -> str:
    kind = OPTIONS[name].kind
    if value is not None:
        return value
    if kind == "flag":
        return "yes"
    if kind == "bool":
        # --offline-mode python main.py: the next word is the program, unless it is a yes or a no.
        return rest.pop(0) if rest and rest[0].lower() in TRUE + FALSE else "yes"
    if not rest:
        raise Refused("the required argument for option '--%s' is missing" % name)
    return rest.pop(0)


# -- options in a file: --import-config and --export-config, as lines of `name = value`

_ABOUT_FILES = ("import-config", "export-config", "overwrite-config")


def imported(options: Options) -> Options:
    """Return what was asked over what its configuration file says. Raises Refused."""
    path = options.text("import-config")
    return options if path is None else Options({**_read(path), **options.values}, options.program)


def _read(path: str) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except OSError as error:
        raise Refused("--import-config %s can't be read: %s" % (path, error.strerror)) from None
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if name not in OPTIONS or not equals:
            raise Refused("%s:%d: unrecognised option '%s'" % (path, number, name))
        found.setdefault(name, []).append(value)
    return found


def export(options: Options) -> None:
    """Write the options in force to the file that was asked for. Raises Refused if there is one already."""
    path = options.text("export-config")
    if path is None:
        return
    if os.path.exists(path) and not options.is_on("overwrite-config"):
        raise Refused("--export-config %s is there already: give --overwrite-config yes, or another name" % path)
    with open(path, "w", encoding="utf-8") as stream:
        for name, values in sorted(options.values.items()):
            if name not in _ABOUT_FILES:
                stream.writelines("%s = %s\n" % (name, value) for value in values)
