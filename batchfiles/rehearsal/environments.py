"""The part of a rank's environment that a batch file decides, so that it can be compared with a job's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from batchfiles.adoption.decisions import tells_place
from trainjob.contract import package
from trainjob.contract.programs.ranks import PLACE_VARIABLES
from trainjob.contract.programs.secret_names import holds_secret, is_secret_variable
from trainjob.contract.programs.secrets_in_shell import secrets_in

# Names that differ between any file and any job, and why. A name that the file itself exports is compared all the same.
BY_NATURE = {
    r"SLURM\w*|_SLURM\w*|SRUN_\w+|SBATCH_\w+|PMI\w*|SPANK_\w+|ENVIRONMENT": "Slurm tells each of its jobs and steps",
    r"TRAINJOB_\w+": "tells the ranks of their run, or programs of their rehearsal",
    r"BASH_ENV|PWD|OLDPWD|SHLVL|_|LC_CTYPE|COLUMNS|LINES": "shells and Python set them; folders are compared as such",
    r"TORCHELASTIC_\w+|PET_\w+|GROUP_\w+|ROLE_\w+|LOCAL_WORLD_SIZE|TORCH_NCCL_ASYNC_ERROR_HANDLING|NCCL_ASYNC_ERROR_HANDLING|"
    r"OMPI_\w+|PRTE_\w+|CROSS_\w+": "launchers set them",
    r"\w+_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK": "compared as GPUs",
    r"(?:APPTAINER|SINGULARITY)ENV_\w+": "a container's own program reads them, and not what runs inside",
}
# Names that a job gives to ranks that have none of them, and why.
GIVEN_BY_JOBS = {
    r"WANDB_RUN_ID|WANDB_RESUME|TENSORBOARD_LOGGING_DIR|SUBMITIT_PREEMPT_SIGNAL": "a run's name, over all attempts",
    r"PYTHONUNBUFFERED|PYTHONFAULTHANDLER": "logs are there before a rank ends",
    r"OMP_NUM_THREADS|OMP_WAIT_POLICY|KMP_BLOCKTIME|GOMP_SPINCOUNT": "a thread for each CPU; compared as threads",
    r"GLOO_SOCKET_IFNAME|NCCL_SOCKET_IFNAME": "the interface of the cluster file, which a rehearsal replaces",
    "|".join(PLACE_VARIABLES): "a rank's place",
    r"JAX_LOCAL_DEVICE_IDS": "the devices of a node, for JAX",
    r"UV_PROJECT_ENVIRONMENT": "else uv makes an environment in the copy of the project",
}
_BY_NATURE, _GIVEN_BY_JOBS = (re.compile("|".join(table)) for table in (BY_NATURE, GIVEN_BY_JOBS))
_ROOT = package.companion("standins").parent
# The output of `date`, which differs between the two, and the folders that a rehearsal makes.
_WHEN = re.compile(r"20\d\d-?[01]\d-?[0-3]\d(?:[-_T]?[0-2]\d[-_:]?[0-5]\d(?:[-_:]?[0-5]\d)?)?|\b1[6-9]\d{8}\b")
_OWN_FOLDERS = re.compile(r"/[^:\s]*/trainjob-(?:slurm|adopted)-[^/:\s]+")
_HANDLES = re.compile(r"\b(tracker_fd|pipe_handle)=\d+")  # of multiprocessing
# A node's own disk, and the stand-ins, as running.py makes them for each rehearsal.
_OF_REHEARSAL = re.compile(r"/[^:\s'\"=]*/trainjob-slurm-[^/:\s]+/(disk|programs)\b")


def decided(
    environment: Mapping[str, str], given: Mapping[str, str], names: Collection[str], folders: Collection[str]
) -> dict[str, str]:
    """Return the variables of a rank that a file can have decided, without secrets, in a form that can be compared.

    `given` is the environment in which sbatch was called, `names` are the variables that the file exports, and
    paths below one of `folders` become relative.
    """
    return {
        name: comparable(name, value, given, folders)
        for name, value in environment.items()
        if (name in names or not (_BY_NATURE.fullmatch(name) or tells_place(name)))
        and not (is_secret_variable(name) or holds_secret(value) or "BASH_FUNC" in name)
        and not ("://" in value and secrets_in(value))
    }


def comparable(name: str, value: str, given: Mapping[str, str], folders: Collection[str]) -> str:
    """Return a value without what a rehearsal or a job puts into it; "…" of a path are the folders that were given."""
    if not name.endswith("PATH"):
        return below(value, folders)
    ours = ("/trainjob/launch/hooks", str(package.companion("standins")), str(_ROOT / "batchfiles"))
    before, found = given.get(name, "").split(":"), list[str]()
    entries = list(filter(None, value.split(":")))
    for at, entry in enumerate(entries):
        if entry in before and entry in entries[at + 1 :]:  # a job puts the folder of its Python in front once more
            continue
        text = "…" if entry in before else below(entry, folders)
        if any(own in entry for own in ours) or _OWN_FOLDERS.match(text) or Path(entry) == _ROOT:
            continue
        if text not in found:
            found.append(text)
    return ":".join(found)


def below(text: str, folders: Collection[str]) -> str:
    """Return a text with paths relative to a rank's folder, and without the time."""
    for own in sorted(folders, key=len, reverse=True):
        text = re.sub(rf"{re.escape(own)}(?=[/:\s'\"]|$)", ".", text)
    return _WHEN.sub("…", _HANDLES.sub(r"\1=…", _OF_REHEARSAL.sub(r"the \1", text)))


def differing(
    theirs: Mapping[str, str],
    ours: Mapping[str, str],
    given: Mapping[str, str],
    login: Collection[tuple[str, str]] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is left of the environments of a file's rank and of the job's, after what both were given.

    A job begins with an empty environment, and adds names of its own: neither is a difference. Nor is a value that a
    login shell sets (`login`), of a name that the other one does not have: not both need to run through such a shell.
    """
    is_given = {name for name in given if theirs.get(name) == given[name] and ours.get(name) in (None, given[name])}
    added = {name for name in ours if name not in theirs and _GIVEN_BY_JOBS.fullmatch(name)}
    of_login = {name for name, _ in login if all(name not in of or (name, of[name]) in login for of in (theirs, ours))}
    left = [
        {name: value for name, value in one.items() if name not in is_given | added | of_login and value != ""}
        for one in (theirs, ours)
    ]
    return left[0], left[1]
