"""Servers that a batch file starts beside its training, and how it waits for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchfiles.bash.commands import ShellCommand
from batchfiles.slurm.script import BatchScript

# Programs that answer others until they are ended, by their whole line.
_OF_MODELS = (
    r"\bvllm serve\b|\bvllm\.entrypoints|\bvllm-serve\b|\bsglang\.launch_server|\btext-generation-launcher\b|"
    r"\btritonserver\b|\bollama serve\b"
)
_KNOWN = (
    rf"{_OF_MODELS}|\bmlflow (?:ui|server)\b|\bredis-server\b|\bhttp\.server\b|\buvicorn\b|"
    r"\bgunicorn\b|\bjupyter\b|\btensorboard\b|\bstreamlit run\b"
)
NEVER_ENDS = re.compile(f"(?i){_KNOWN}")
SERVES_MODEL = re.compile(f"(?i){_OF_MODELS}")
_STAYS = re.compile(
    rf"(?i:{_KNOWN})|ray start .*--block|nvidia-smi .*(?:-l\b|--loop|-lms)|nvidia-smi dmon|dcgmi dmon|"
    r"sleep (?:infinity|inf)\b|tail -[fF]|^watch "
)
# Others may end with their last client.
SERVES = re.compile(
    rf"(?i){_KNOWN}|(?:^|[\s/._-])(?:serve|server)(?:[_-]\w+)?\.(?:py|sh)\b|[_-](?:serve|server)\.(?:py|sh)\b|"
    r"-m\s+[\w.]*\b(?:serve|server)\b"
)
_LOOKS = re.compile(r"curl|wget|nc|ncat|netcat|lsof|ss|netstat|redis-cli|pg_isready")
_BY_PYTHON = re.compile(r"urllib|requests\.get|socket|httpx")
_BESIDE = re.compile(
    r"echo|printf|test|\[\[?|exit|break|continue|return|date|tail|head|cat|grep|true|false|:|kill|wait|ps|seq|timeout|"
    r"nvidia-smi|let|expr|awk|tr|jq|set|local|bash|sh|sleep|touch|cut"
)
# Files and packages may have a server's name.
_HANDLES = re.compile(
    r"mkdir|rm|cp|mv|ln|ls|cd|touch|rsync|chmod|chown|find|export|echo|printf|pip3?|module|git|kill|pkill|curl"
)
_DETACHES = re.compile(r"(?:docker|podman|nerdctl)\s.*?\s(?:-\w*d\w*|--detach)\s")


def never_ends(command: ShellCommand) -> bool:
    """Return whether a command runs until it is ended."""
    text = command.text
    return bool(_STAYS.search(text)) and not (_HANDLES.fullmatch(command.name) or _DETACHES.match(text))


def awaited_by_sleep(script: BatchScript) -> Iterator[ShellCommand]:
    """Yield each sleep that alone stands between the start of a server and what needs it."""
    server: ShellCommand | None = None
    sleep: ShellCommand | None = None
    trained = {id(one.outermost.command) for one in script.training}
    for command in script.commands:
        text = " ".join(word.text for word in command.words)
        if command.background and SERVES.search(text) and not command.dead:
            server, sleep = command, None
        elif server is not None and (_LOOKS.fullmatch(command.name) or "/dev/tcp/" in text):
            server = None  # asked
        elif server is not None and command.name == "sleep" and not command.within:
            sleep = sleep or command
        elif sleep is not None and id(command) in trained:
            yield sleep
            server = sleep = None


def commands_in(script: BatchScript, first: int, behind: int) -> Iterator[ShellCommand]:
    """Yield the commands from one byte of the file to another, with those of the functions that they call."""
    is_called = False
    for one in script.commands:
        if not one.source and first <= one.at < behind:
            is_called = one.is_call or (is_called and "function" in one.within)
            yield one
        elif is_called and "function" in one.within:
            yield one
        else:
            is_called = False


def is_look(one: ShellCommand) -> bool:
    """Return whether a command looks whether something answers."""
    is_python = re.fullmatch(r"python[\d.]*", one.name) is not None
    return bool(_LOOKS.fullmatch(one.name) or (is_python and "-c" in one.text and _BY_PYTHON.search(one.text)))


def looks_for_server(script: BatchScript, first: int, behind: int) -> str:
    """Return how the statement at these bytes waits for what was started: at an "address", by a "sleep", or not: ""."""
    asks = sleeps = follows = waits = False
    for one in commands_in(script, first, behind):
        is_ray = re.match(r"(?:srun\s.*)?ray (?:status|health-check|list nodes)\b", one.text) is not None
        if is_ray or is_look(one):
            asks = True
        elif one.name and _BESIDE.fullmatch(one.name) is None and not one.is_call:
            return ""
        sleeps = sleeps or one.name == "sleep"
        waits = waits or one.name == "wait"  # for the end of what it follows
        follows = follows or (one.name == "kill" and "condition" in one.within)
    asks = asks or (follows and not waits) or b"/dev/tcp/" in (script.root.text or b"")[first:behind]
    return "address" if asks else "sleep" if sleeps else ""
