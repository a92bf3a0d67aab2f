"""The options of sbatch and srun: names, what each takes, since which release, and who decides them in a job of ours.

Which program knows an option, and whether it takes a value, is what sbatch and srun of Slurm 22.05 answer when they are
given it. Newer options are from Slurm's change logs.
"""

from __future__ import annotations

import difflib
from typing import Collection, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

# Name, short name, what it takes, whose it is, since which release (later: than 22.05), and who decides it: in a
# directive, and for a step.
# A directive is decided by the plan (refused elsewhere), by default (a job may state another), by the site, the job or
# its container; is never for a job of ours (nothing would be submitted), or unneeded. For a step it is decided by the
# page, which refuses it, replaced by what a job does anyway, refused, kept, of the container, or lost.
_TABLE = """
accel-bind               - value    srun   -     -         replaced
account                  A value    both   -     site      lost
acctg-freq               - value    both   -     job       lost
array                    a value    sbatch -     plan      -
autocomplete             - value    both   23.02 never     lost
batch                    - value    sbatch -     job       -
bb                       - value    both   -     job       lost
bbf                      - value    both   -     job       lost
bcast                    - optional srun   -     -         refused
bcast-exclude            - value    srun   -     -         lost
begin                    b value    both   -     job       lost
chdir                    D value    both   -     plan      refused
cluster-constraint       - value    both   -     site      lost
clusters                 M value    both   -     site      lost
comment                  - value    both   -     job       lost
compress                 - optional srun   -     -         lost
consolidate-segments     - flag     both   25.11 job       lost
constraint               C value    both   -     site      lost
container                - value    both   -     job       lost
container-entrypoint     - flag     plugin -     job       lost
container-entrypoint-log - flag     plugin -     job       lost
container-env            - value    plugin -     job       lost
container-id             - value    both   later job       lost
container-image          - value    plugin -     container container
container-mount-home     - flag     plugin -     job       replaced
container-mounts         - value    plugin -     container container
container-name           - value    plugin -     container container
container-readonly       - flag     plugin -     job       lost
container-remap-root     - flag     plugin -     job       replaced
container-save           - value    plugin -     job       lost
container-workdir        - value    plugin -     container replaced
container-writable       - flag     plugin -     job       lost
contiguous               - flag     both   -     job       lost
core-spec                S value    both   -     job       lost
cores-per-socket         - value    both   -     job       lost
cpu-bind                 - value    srun   -     -         kept
cpu-freq                 - value    both   -     job       lost
cpus-per-gpu             - value    both   -     default   replaced
cpus-per-task            c value    both   -     job       decided
deadline                 - value    both   -     job       lost
delay-boot               - value    both   -     job       lost
dependency               d value    both   -     job       lost
disable-status           X flag     srun   -     -         lost
disable-dcgm             - flag     plugin -     job       lost
disable-perfparanoid     - flag     plugin -     job       lost
distribution             m value    both   -     job       kept
environment              - value    plugin -     container container
epilog                   - value    srun   -     -         lost
error                    e value    both   -     plan      decided
exact                    - flag     srun   -     -         replaced
exclude                  x value    both   -     job       refused
exclusive                - optional both   -     site      replaced
export                   - value    both   -     plan      refused
export-file              - value    sbatch -     plan      -
external-launcher        - flag     srun   later -         lost
extra                    - value    both   -     job       lost
extra-node-info          B value    both   -     job       lost
get-user-env             - optional sbatch -     unneeded  -
gid                      - value    both   -     job       lost
gpu-bind                 - value    both   -     default   replaced
gpu-freq                 - value    both   -     job       lost
gpus                     G value    both   -     default   replaced
gpus-per-node            - value    both   -     job       replaced
gpus-per-socket          - value    both   -     default   replaced
gpus-per-task            - value    both   -     default   replaced
gres                     - value    both   -     job       replaced
gres-flags               - value    both   -     site      lost
help                     h flag     both   -     never     lost
het-group                - value    srun   -     -         decided
hint                     - value    both   -     job       kept
hold                     H flag     both   -     unneeded  lost
ignore-pbs               - flag     sbatch -     unneeded  -
image                    - value    plugin -     container container
immediate                I optional srun   -     -         lost
input                    i value    both   -     unneeded  decided
ipus                     - value    plugin -     site      lost
interactive              - flag     srun   -     -         refused
job-name                 J value    both   -     job       replaced
jobid                    - value    srun   -     -         decided
kill-on-bad-exit         K optional srun   -     -         decided
kill-on-invalid-dep      - value    sbatch -     job       -
label                    l flag     srun   -     -         replaced
licenses                 L value    both   -     site      lost
mail-type                - value    both   -     job       lost
mail-user                - value    both   -     job       lost
mcs-label                - value    both   -     job       lost
mem                      - value    both   -     site      replaced
mem-bind                 - value    both   -     job       kept
mem-per-cpu              - value    both   -     site      replaced
mem-per-gpu              - value    both   -     site      replaced
mincpus                  - value    both   -     job       lost
module                   - value    plugin -     job       lost
mpi                      - value    srun   -     -         kept
msg-timeout              - value    srun   -     -         lost
multi-prog               - flag     srun   -     -         refused
network                  - value    both   -     site      kept
nice                     - optional both   -     job       lost
no-allocate              Z flag     srun   -     -         lost
no-container-entrypoint  - flag     plugin -     job       lost
no-container-mount-home  - flag     plugin -     job       replaced
no-container-remap-root  - flag     plugin -     job       lost
no-kill                  k optional both   -     job       lost
no-requeue               - flag     sbatch -     site      -
nodefile                 F value    both   -     job       lost
nodelist                 w value    both   -     job       refused
nodes                    N value    both   -     plan      decided
ntasks                   n value    both   -     plan      decided
ntasks-per-core          - value    both   -     job       lost
ntasks-per-gpu           - value    both   -     default   replaced
ntasks-per-node          - value    both   -     plan      decided
ntasks-per-socket        - value    both   -     job       lost
ntasks-per-tres          - value    both   -     job       lost
oom-kill-step            - optional both   later job       lost
open-mode                - value    both   -     plan      replaced
output                   o value    both   -     plan      decided
overcommit               O flag     both   -     job       lost
overlap                  - optional srun   -     -         decided
oversubscribe            s flag     both   -     site      lost
parsable                 - flag     sbatch -     never     -
partition                p value    both   -     site      lost
power                    - value    both   -     job       lost
prefer                   - value    both   -     site      lost
preserve-env             E flag     srun   -     -         lost
priority                 - value    both   -     job       lost
profile                  - value    both   -     job       lost
prolog                   - value    srun   -     -         lost
propagate                - optional both   -     default   lost
pty                      - flag     srun   -     -         decided
qos                      q value    both   -     site      lost
quiet                    Q flag     both   -     default   replaced
quit-on-interrupt        - flag     srun   -     -         refused
reboot                   - flag     both   -     job       lost
relative                 r value    srun   -     -         lost
requeue                  - flag     sbatch -     default   -
reservation              - value    both   -     site      lost
resv-ports               - optional srun   -     -         lost
segment                  - value    both   later job       lost
send-libs                - optional srun   -     -         lost
signal                   - value    both   -     plan      lost
slurmd-debug             - value    srun   -     -         lost
sockets-per-node         - value    both   -     job       lost
spread-job               - flag     both   -     job       lost
spread-segments          - flag     both   25.11 job       lost
stepmgr                  - flag     both   later job       lost
switches                 - value    both   -     job       lost
task-epilog              - value    srun   -     -         lost
task-prolog              - value    srun   -     -         lost
test-only                - flag     both   -     never     refused
thread-spec              - value    both   -     job       lost
threads                  T value    srun   -     -         lost
threads-per-core         - value    both   -     site      replaced
time                     t value    both   -     plan      lost
time-min                 - value    both   -     job       lost
tmp                      - value    both   -     job       lost
tres-bind                - value    both   later job       lost
tres-per-task            - value    both   23.02 job       lost
uenv                     - value    plugin -     job       lost
uid                      - value    both   -     job       lost
unbuffered               u flag     srun   -     -         replaced
usage                    - flag     both   -     never     lost
use-min-nodes            - flag     both   -     job       lost
verbose                  v flag     both   -     default   replaced
version                  V flag     both   -     never     lost
view                     - value    plugin -     job       lost
volume                   - value    plugin -     container container
wait                     W flag/value both -     never     kept
wait-all-nodes           - value    sbatch -     job       -
wait-for-children        - flag     srun   later -         lost
wckey                    - value    both   -     site      lost
whole                    - flag     srun   -     -         lost
wrap                     - value    sbatch -     plan      -
x11                      - optional srun   -     -         lost
"""


_MISSPELT = 0.8  # how alike a name and its misspelling are


class SlurmOption(NamedTuple):
    """An option of sbatch, of srun, or of a plugin that many sites have (Pyxis, and CSCS's containers)."""

    name: str
    short: str
    takes: str  # value; flag; optional: behind "=" alone; flag/value: a flag of sbatch, and a value of srun's
    of: str  # sbatch, srun, both, plugin
    since: str  # the release of Slurm; empty: it has long been there
    directive: str
    step: str


def _read(line: str) -> SlurmOption:
    name, short, takes, of, since, directive, step = (field if field != "-" else "" for field in line.split())
    return SlurmOption(name, short, takes, of, since, directive, step)


OPTIONS: Dict[str, SlurmOption] = {row.name: row for row in map(_read, _TABLE.strip().split("\n"))}
# By these, a job may have more devices than its plan counts: by the last two, if they name some.
_ASK_FOR_DEVICES = ("exclusive", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
_ASK_BY_NAME, _DEVICES = ("gres", "tres-per-task"), ("gpu", "mps", "shard", "ipu")
# Where a job states what its plan or its run directory decides.
STATED_BY = {
    "nodes": "--hosts of the job",
    "ntasks": "--instances of the job",
    "ntasks-per-node": "--instances and --hosts of the job",
    "output": "the run directory: logs/scheduler.out",
    "error": "the run directory: logs/scheduler.out",
    "open-mode": "the run directory: logs are appended over attempts",
    "export": "env: of the cluster file or the job",
    "export-file": "env: of the cluster file or the job",
    "chdir": "the run directory, in which sbatch is called",
    "array": "--array of the job",
    "time": "time_limit: of the cluster file, or --time-limit of the job",
    "signal": "time_limit_signal: of the cluster file",
    "wrap": "the job script",
}
# Other names that both programs accept, or srun alone.
_OTHER_NAMES = {"tasks-per-node": "ntasks-per-node", "wait-all": "wait-all-nodes"}
_OTHER_NAMES_OF_SRUN = {"cpu_bind": "cpu-bind", "mem_bind": "mem-bind"}
# What people mean by a name that there is not, or no longer.
_MEANT = {
    "workdir": "chdir",
    "share": "oversubscribe",
    "job-id": "jobid",
    "gpu": "gpus",
    "node": "nodes",
    "ngpus": "gpus",
    "ntask": "ntasks",
    "cpus": "cpus-per-task",
    "memory": "mem",
    "walltime": "time",
    "time-limit": "time",
    "name": "job-name",
    "email": "mail-user",
    "queue": "partition",
}


def asks_for_devices(option: str, value: object) -> bool:
    """Return whether a job may have more devices by this directive than its plan counts; False is an absent one."""
    names_some = option in _ASK_BY_NAME and any(word in str(value) for word in _DEVICES)
    return value is not False and (option in _ASK_FOR_DEVICES or names_some)


def of_program(program: str) -> FrozenSet[str]:
    """Return the names of the options of `program`, sbatch or srun; those of well-known plugins are among them."""
    return frozenset(row.name for row in OPTIONS.values() if row.of in (program, "both", "plugin"))


_OF = {program: of_program(program) for program in ("sbatch", "srun")}
SHORT = {
    program: {OPTIONS[name].short: name for name in names if OPTIONS[name].short} for program, names in _OF.items()
}
# An option of srun's in a directive: what its author means is understood, too.
_LETTERS = {**SHORT["srun"], **SHORT["sbatch"]}


def is_flag(name: str, program: str = "sbatch") -> bool:
    """Return whether an option never takes the next word."""
    takes = OPTIONS[name].takes if name in OPTIONS else "value"
    return (takes.split("/")[program == "srun"] if "/" in takes else takes) != "value"


def long_name(name: str, program: str = "sbatch") -> str:
    """Return the full name of an option as its author means it; `name` itself for an unknown one.

    What the program would refuse, such as ntasks_per_node, is understood, too: `refusal` says so.
    """
    name = name.replace("_", "-")
    if name in OPTIONS or name in _MEANT:
        return _MEANT.get(name, name)
    longer = {_OTHER_NAMES.get(other, other) for other in (*_OF[program], *_OTHER_NAMES) if other.startswith(name)}
    return longer.pop() if len(longer) == 1 else name


def refusal(written: str, program: str = "sbatch", known: Collection[str] = ()) -> Optional[Tuple[str, str]]:
    """Return why `program` refuses the long option called `written`, and the name to write instead, if one is clear.

    None if it accepts it: it also takes the beginning of a name, if no other option begins so. `known` are options of
    a site's plugins.
    """
    names = {*_OF[program], *_OTHER_NAMES, *(_OTHER_NAMES_OF_SRUN if program == "srun" else ()), *known}
    longer = sorted(name for name in names if name.startswith(written))
    if written in names or len(longer) == 1:
        return None
    meant, other = long_name(written, program), "srun" if program == "sbatch" else "sbatch"
    if meant in _OF[other] - _OF[program]:
        return "--%s is an option of %s, and %s has none of that name" % (written, other, program), ""
    close = difflib.get_close_matches(written.replace("_", "-"), names, n=1, cutoff=_MISSPELT)
    better = meant if meant != written else "".join(close)
    if longer:
        return "--%s may be %s: %s wants more of the name" % (written, ", ".join(longer), program), better
    return "%s has no option --%s" % (program, written), better


def read_options(words: Sequence[str], program: str = "sbatch") -> Iterator[Tuple[str, Optional[str], int]]:
    """Yield the full name and value of each leading option, and the number of the word after it."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        found, at = options_of_word(words, at, program)
        yield from ((name, value, at) for name, value in found)


def options_of_word(
    words: Sequence[str], at: int, program: str = "sbatch"
) -> Tuple[List[Tuple[str, Optional[str]]], int]:
    """Return the options in `words[at]` with their values, and the number of the word after them: -vN 2 has two."""
    word, following = words[at], words[at + 1 : at + 2]
    if word.startswith("--"):
        written, equals, text = word[2:].partition("=")
        name = long_name(written, program)
        if equals:
            return [(name, text)], at + 1
        return ([(name, None)], at + 1) if is_flag(name, program) or not following else ([(name, following[0])], at + 2)
    found: List[Tuple[str, Optional[str]]] = []
    for place, letter in enumerate(word[1:], start=2):
        name, rest = _LETTERS.get(letter, letter), word[place:]
        joined = rest[1:] if rest.startswith("=") else rest
        if name in OPTIONS and OPTIONS[name].takes == "optional":  # its value is joined to it
            return [*found, (name, joined or None)], at + 1
        if not is_flag(name, program):
            takes_next = not rest and bool(following)
            return [*found, (name, following[0].lstrip("=") if takes_next else joined)], at + 1 + takes_next
        found.append((name, None))
    return found, at + 1
