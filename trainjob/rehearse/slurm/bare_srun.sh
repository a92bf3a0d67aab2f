# shellcheck shell=bash
# The least that a job of this size does. Below the job's own directives; $1 is the file that takes when it was done.
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" true
date +%s.%N >"$1.part"
mv "$1.part" "$1"
