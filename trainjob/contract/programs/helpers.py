"""Programs that stand beside a training: they print, prepare, watch, or start something else, and train nothing."""

from __future__ import annotations

# Builtins of bash, and words of its grammar that a cut line may begin with.
_OF_BASH = """
. : [ [[ alias break cd command continue declare disown echo eval exec exit export false getopts hash if jobs let
local mapfile printf pwd read readarray return set shift source test then time trap true type typeset ulimit umask
unset wait
"""
# They only print: what they say changes nothing.
_PRINTS = """
amd-smi awk basename cat clear comm cut date df dirname du env free getent grep head hostname ibdev2netdev ibstat id
ifconfig ip jq ls lscpu lsof lspci nc ncat netstat nproc nslookup numactl nvcc nvidia-smi ping printenv ps readlink
realpath rocm-smi rocminfo sacct scontrol sed seff seq shuf sinfo sleep sort squeue ss sstat stat tail tee time tr
uname uniq wc which whoami
"""
# They move files, ask services or keep an eye on the machine.
_HELPS = """
apptainer aws bash bc chmod cmake conda cp curl dcgmi dig dmesg docker enroot expr find gcc gcloud getopts git
groups gsutil hf host huggingface-cli ibv_devinfo install kill killall ln logger mail make mamba md5sum micromamba
mkdir mktemp ml module mv nsys pgrep pip pip3 pkill podman ray rclone redis-server rm rmdir rsync sbatch sbcast
scancel scp sendmail sh shifter singularity spack tar tensorboard top touch tput truncate unsquashfs unzip uv
virtualenv vllm wandb watch wget xargs yes
"""
PRINTERS = frozenset(_PRINTS.split())
HELPERS = frozenset((*_OF_BASH.split(), *PRINTERS, *_HELPS.split()))
# Commands of the shell or of files that leave no trace in a job: where adopted, they are not needed.
_LEAVES_NOTHING = """
echo printf pwd type true false : test [ [[ exit return wait jobs trap kill shift local break continue
python python3 git
"""
LEAVES_NOTHING = frozenset((*PRINTERS, *_LEAVES_NOTHING.split()))
# What people put around the training of each rank, for the log.
FOR_THE_LOG = (*["echo", "printf", "hostname", "date", "nvidia-smi", "rocm-smi", "pwd", "env", "set", "sleep"], "")
# They show what a machine does.
WATCHES = frozenset(
    ("nvidia-smi", "rocm-smi", "amd-smi", "dcgmi", "nvtop", "gpustat", "top", "htop", "vmstat", "iostat")
)
SHELLS = ("bash", "sh", "zsh")
# They give a word to a shell, if it is a whole command.
GIVE_SHELL = ("parallel", "script", "sg", "su", "flock")
CONTAINERS = ("apptainer", "singularity", "shifter", "docker", "podman", "podman-hpc", "enroot", "ch-run")
# Programs that set up an environment, or run another program in one.
RUNNERS = ("uv", "mamba", "conda", "micromamba", "poetry", "pixi", "hatch", "pipenv", "pdm", "rye")
ENVIRONMENTS = (
    *("module", "ml", "spack", "conda", "mamba", "micromamba", "uv", "poetry", "pixi", "pip", "pip3", "virtualenv"),
    *("ws_find", "ws_allocate", "jutil"),  # a folder of the user's, as many German sites have
)
COPIES = ("rsync", "cp", "tar", "unzip", "unsquashfs")
# Names that a misspelt one probably means: no other command resembles them, as gunzip resembles unzip.
_OFTEN_MISSPELT = """
module source export srun sbatch torchrun python python3 conda mkdir scontrol
accelerate deepspeed nvidia-smi apptainer singularity hostname activate echo
"""
OFTEN_MISSPELT = frozenset(_OFTEN_MISSPELT.split())


def is_typing_error(word: str, known: str) -> bool:
    """Return whether one letter is missing, added or wrong, or two neighbours are swapped."""
    if word == known or abs(len(word) - len(known)) > 1 or min(len(word), len(known)) < 4:
        return False
    at = next(
        (place for place, (one, other) in enumerate(zip(word, known)) if one != other), min(len(word), len(known))
    )
    rest, other = word[at:], known[at:]
    return other[1:] in (rest, rest[1:]) or rest[1:] == other or rest == other[1::-1] + other[2:]


def helps(name: str) -> bool:
    """Return whether the program called `name` is a helper, and never a training."""
    return name in HELPERS or name.startswith("start_")
