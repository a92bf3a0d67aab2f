"""Options of sbatch, srun and launchers, as they are on a command line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

SLURM_SHORT = {
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "Q": "quiet",
    "S": "core-spec",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "k": "no-kill",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "x": "exclude",
}
SRUN_SHORT = SLURM_SHORT | {
    "K": "kill-on-bad-exit",
    "l": "label",
    "u": "unbuffered",
    "X": "disable-status",
    "r": "relative",
}
# A value only after "=": a word that follows is something else.
_FLAGS = (
    "contiguous exclusive export-file-only get-user-env hold ignore-pbs no-kill no-requeue "
    "overcommit oversubscribe parsable quiet "
    "requeue spread-job test-only use-min-nodes verbose wait-all kill-on-bad-exit label unbuffered disable-status "
    "overlap exact whole pty multi-prog nice propagate mem-bind-none no-allocate stepmgr reboot no-bell preserve-env "
    "no-container-mount-home no-container-entrypoint no-container-remap-root container-writable container-readonly "
    "container-mount-home container-remap-root container-entrypoint"
)
FLAGS = frozenset(_FLAGS.split())
_OTHERS = (
    "acctg-freq bb bbf cluster-constraint comment container container-id container-image container-mounts "
    "container-name container-workdir container-env cores-per-socket cpu-bind cpu-freq cpus-per-gpu deadline "
    "delay-boot environment exclude export export-file gid gpu-bind gpu-freq gpus-per-node gpus-per-socket "
    "gpus-per-task gres gres-flags hint kill-on-invalid-dep mail-type mail-user mcs-label mem mem-bind mem-per-cpu "
    "mem-per-gpu mincpus network nodefile ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket "
    "open-mode power prefer priority profile reservation signal sockets-per-node switches task-epilog "
    "thread-spec threads-per-core time-min tmp tres-bind tres-per-task tres-per-job uid "
    "umask wait-all-nodes wckey wrap "
    "accel-bind bcast jobid job-id mpi multi-prog slurmd-debug task-prolog resv-ports segment"
)
LONG_NAMES = frozenset(SLURM_SHORT.values()) | FLAGS | frozenset(_OTHERS.split())
_OTHER_NAMES = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir", "job-id": "jobid", "share": "oversubscribe"}


def long_name(name: str, known: Collection[str] = LONG_NAMES) -> str:
    """Return the full name of an abbreviated option of Slurm; `name` itself for one of a plugin."""
    name = name.replace("_", "-")
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    if name in known:
        return name
    longer = sorted(other for other in known if other.startswith(name))
    return longer[0] if len(longer) == 1 else name


def slurm_options(
    words: Sequence[str], short: Mapping[str, str] = SLURM_SHORT
) -> Iterator[tuple[str, str | None, int]]:
    """Yield the full name and value of each leading option, and the number of the word after it."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = long_name(name)
            if equals:
                yield name, value, at
            elif name in FLAGS or at >= len(words):
                yield name, None, at
            else:
                yield name, words[at], at + 1
                at += 1
            continue
        for place, letter in enumerate(word[1:], start=2):
            name = short.get(letter, letter)
            rest = word[place:]
            if name == "kill-on-bad-exit":  # its value is optional, and joined to it
                yield name, rest.removeprefix("=") or None, at
                break
            if name in FLAGS:
                yield name, None, at
                continue
            if not rest and at < len(words):
                rest, at = words[at], at + 1
            yield name, rest.removeprefix("="), at
            break


def number(text: str | None) -> int | None:
    """Return a whole number as written; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
