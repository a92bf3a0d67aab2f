# shellcheck shell=bash
# The least that a job of this size does. Below the job's own directives; $1 is the file that takes when it was done, and
# the other words are what each node runs.
ended=$1
shift
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" "$@"
date +%s.%N >"$ended.part"
mv "$ended.part" "$ended"
