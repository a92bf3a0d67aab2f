"""Records what each Python process of a rehearsed batch file sees.

A process leaves one JSON file in the folder that TRAINJOB_SEEN names. Its arguments, its results and its exit code stay
as they are.
"""

from __future__ import annotations

import atexit
import functools
import importlib.machinery
import json
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
import uuid
from types import FrameType, ModuleType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

from . import is_of_handler

_FOLDER = os.environ.get("TRAINJOB_SEEN")
_TICK_S = 0.25
_WORTH_TELLING_S = 0.8  # of CPU time: one that waits uses less in half a minute
_C10D = "torch.distributed.distributed_c10d"
_RENDEZVOUS = "torch.distributed.elastic.rendezvous.utils"


class Record:
    """The observations of this process so far."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        with open("/proc/self/cmdline", "rb") as stream:
            words = os.fsdecode(stream.read()).split("\0")[:-1]
        self.fields: Dict[str, Any] = {
            "pid": self.process,
            "parent": os.getppid(),
            "began_at": time.time(),
            "node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
            "words": words,
            "folder": _working_folder(),
            "environment": dict(os.environ),
            "cpus": len(os.sched_getaffinity(0)),
            "limits": _limits(),
        }
        self.signals: List[str] = []  # that came, if the process has handlers for them
        self.write()

    def add(self, **fields: Any) -> None:
        """Add what was seen, and write the file."""
        with self.lock:
            self.fields.update(fields)
            self.write()

    def write(self) -> None:
        """Write the file. A process must not depend on its record.

        A signal may come meanwhile in this thread, and its handler write: so what is written was there before.
        """
        name = "process-%d-%d.json" % (self.fields["began_at"] * 1000, self.process)
        with self.lock:
            written = -1
            while written != len(self.signals):
                written = len(self.signals)
                came = {"signals": self.signals[:written]} if written else {}
                staging = os.path.join(_FOLDER or "", ".%d.%s" % (written, name))
                try:
                    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                    with os.fdopen(descriptor, "w") as stream:
                        stream.write(json.dumps({**self.fields, **came}))
                    os.replace(staging, os.path.join(_FOLDER or "", name))
                except OSError as error:
                    if is_of_handler(error):
                        raise


def _limits() -> Dict[str, str]:
    """Return the soft limits of this process, in the kernel's units, and its umask."""
    mask = os.umask(0o077)  # there is no other way to read it
    os.umask(mask)
    found = {"umask": "%03o" % mask}
    for name in (name for name in dir(resource) if name.startswith("RLIMIT_")):
        soft = resource.getrlimit(getattr(resource, name))[0]
        found[name[7:].lower()] = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    return found


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        if is_of_handler(error):
            raise
        return ""


class _Own:
    record: Optional[Record] = None


def record() -> Record:
    """Return the record of this process; a forked one begins its own once it does something worth telling."""
    if _Own.record is None or _Own.record.process != os.getpid():
        _Own.record = Record()
    return _Own.record


def begin() -> None:
    """Record this process from now on."""
    record()
    watch_signals()
    watch_end()
    if "TRAINJOB_SEEN_WAIT_S" in os.environ:
        wait_for_others()


# -- torch: its groups, its GPUs, its threads ---------------------------------------------------


def prepare(name: str) -> None:
    """Record that torch is being loaded, which may never be over."""
    if name == "torch":
        record().add(torch=None)
        begin_ticking()


def act(name: str, module: ModuleType) -> None:
    """Step in, now that a module of torch has been loaded."""
    {"torch": _after_torch, _C10D: _after_distributed, _RENDEZVOUS: _after_rendezvous}[name](module)


def _after_torch(torch: ModuleType) -> None:
    record().add(torch=str(torch.__version__))


def _after_distributed(c10d: ModuleType) -> None:
    make_group = c10d.init_process_group

    @functools.wraps(make_group)
    def recorded(*arguments: Any, **options: Any) -> Any:
        asked = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        given = {name: options[name] for name in ("rank", "world_size") if options.get(name, -1) != -1}
        record().add(
            joining={
                "rank": _number(given.get("rank", asked["RANK"])),
                "world_size": _number(given.get("world_size", asked["WORLD_SIZE"])),
                "address": asked["MASTER_ADDR"],
                "port": _number(asked["MASTER_PORT"]),
            }
        )
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        if interface and not {*interface.split(",")} <= {name for _, name in socket.if_nameindex()}:
            record().add(interface=interface)
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        made = make_group(*arguments, **options)
        record().add(
            world={
                "id": _agreed(c10d),
                "rank": int(c10d.get_rank()),
                "size": int(c10d.get_world_size()),
                "backend": str(c10d.get_backend()),
            },
            **_state(),
        )
        return made

    vars(c10d)["init_process_group"] = recorded


def _after_rendezvous(utils: ModuleType) -> None:
    """Let a node be the host of an address that only the cluster has: the first that listens there is."""
    is_own = utils._matches_machine_hostname

    def is_here(host: str) -> bool:
        return is_own(host) or re.fullmatch(r"(?!127\.)\d+\.\d+\.\d+\.\d+", host) is not None

    vars(utils)["_matches_machine_hostname"] = functools.wraps(is_own)(is_here)


def _number(text: Any) -> Optional[int]:
    return int(text) if str(text).isdigit() else None


def _agreed(c10d: ModuleType) -> Optional[str]:
    """Return the name that the ranks of this group, and no others, have for it; None where their store has no such."""
    name = uuid.uuid4().hex
    try:
        return bytes(c10d._get_default_store().compare_set("trainjob_world", "", name)).decode()
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        if is_of_handler(error):
            raise
        return None


def _state() -> Dict[str, Any]:
    """Return what may change while a process runs."""
    found: Dict[str, Any] = {"cpu_s": round(time.process_time(), 2), "handles": sorted(_handled)}
    torch = sys.modules.get("torch")
    get_threads = getattr(torch, "get_num_threads", None)  # absent while torch is being loaded
    found.update({"threads": int(get_threads())} if get_threads else {} if torch else {"threads": None})
    # None while it is being loaded.
    loaded = getattr(getattr(sys.modules.get("trainjob_gpu.device"), "_Loaded", None), "device", None)
    if loaded is not None:
        from trainjob_gpu.functions import Functions

        functions = Functions(loaded)
        found["visible_gpus"] = list(loaded.numbers)
        found["used_gpus"] = [number for index, number in enumerate(loaded.numbers) if functions.highest(index)]
    return found


def begin_ticking() -> None:
    """Record every now and then what has changed: a process that is killed has no end of its own."""
    process = os.getpid()

    def tick() -> None:
        last: Dict[str, Any] = {}
        while os.getpid() == process:
            time.sleep(_TICK_S)
            now = _state()
            if now["cpu_s"] < last.get("cpu_s", -1.0) + _WORTH_TELLING_S:
                now["cpu_s"] = last["cpu_s"]
            if now != last:
                last = now
                record().add(**now)

    threading.Thread(target=tick, name="trainjob-seen", daemon=True).start()


# -- signals ------------------------------------------------------------------------------------

_handled: Dict[str, Callable[..., Any]] = {}


def watch_signals() -> None:
    """Record for which signals a process has handlers, and which of them came."""
    set_handler, get_handler = signal.signal, signal.getsignal

    def unwrapped(handler: object) -> Any:
        return getattr(handler, "trainjob_unwrapped", handler)

    def set_recorded(signalnum: int, handler: Any) -> Any:
        if not callable(handler) or isinstance(handler, signal.Handlers) or handler is signal.default_int_handler:
            before = set_handler(signalnum, handler)
            _handled.pop(_signal_name(signalnum), None)
            return unwrapped(before)

        def recorded(received: int, frame: Optional[FrameType]) -> Any:
            try:
                own = record()
                own.signals.append(_signal_name(received))
                own.write()
            except Exception as error:  # the program's handler has its turn all the same
                if is_of_handler(error):
                    raise
            return unwrapped(handler)(received, frame)

        vars(recorded)["trainjob_unwrapped"] = unwrapped(handler)
        before = set_handler(signalnum, recorded)
        _handled[_signal_name(signalnum)] = handler
        return unwrapped(before)

    def get_unwrapped(signalnum: int) -> Any:
        return unwrapped(get_handler(signalnum))

    vars(signal)["signal"] = functools.wraps(set_handler)(set_recorded)
    vars(signal)["getsignal"] = functools.wraps(get_handler)(get_unwrapped)


def _signal_name(number: int) -> str:
    """Return TERM for SIGTERM, and RTMIN+3 for a real-time signal, of which most have no name."""
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return "RTMIN+%d" % (number - signal.SIGRTMIN)


# -- the end ------------------------------------------------------------------------------------


def watch_end() -> None:
    """Record how a process ends, if it ends by itself."""
    report, process, leave = sys.excepthook, os.getpid(), sys.exit

    def recorded(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> Any:
        missing = error.filename if isinstance(error, FileNotFoundError) else None
        record().add(
            error="%s: %s" % (kind.__name__, error),
            missing=os.fsdecode(missing) if isinstance(missing, (str, bytes)) else None,
            line=_line_of_user(trace),
        )
        return report(kind, error, trace)

    def ended() -> None:
        if os.getpid() == process:
            record().add(ended=True, ended_at=time.time(), **_state())

    @functools.wraps(leave)
    def left(status: Any = None) -> Any:
        code = status if isinstance(status, int) else int(status is not None)
        record().add(exit_code=code)
        leave(status)

    sys.excepthook = recorded
    vars(sys)["exit"] = left
    atexit.register(ended)


def _line_of_user(trace: Optional[TracebackType]) -> Optional[str]:
    """Return where in the user's own files the error was raised, as file:line."""
    found = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (
            "site-packages" not in name
            and "trainjob_gpu" not in name  # the stand-in
            and os.path.dirname(__file__) not in name
            and not name.startswith(("<", sys.base_prefix))
        ):
            found = "%s:%d" % (name, trace.tb_lineno)
        trace = trace.tb_next
    return found


def wait_for_others() -> None:
    """Wait, and end the process, where the program that it would run is not here: its start is all that can be seen."""
    words, at = record().fields["words"], 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "-c", "-m"):
        at += 2 if words[at] in ("-W", "-X") else 1
    if at >= len(words) or words[at] in ("-", "-c"):
        return
    if words[at] == "-m" and at + 1 < len(words):
        package, folder = words[at + 1].partition(".")[0], _working_folder()
        if importlib.machinery.PathFinder.find_spec(package, [folder, *sys.path]) is not None:
            return
    elif os.path.exists(words[at]):
        return
    time.sleep(float(os.environ["TRAINJOB_SEEN_WAIT_S"]))
    record().add(ended=True)
    os._exit(0)
