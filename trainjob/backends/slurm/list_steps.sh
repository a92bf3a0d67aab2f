# list_steps.sh: lists the steps of this user's jobs that run, "JOB JOB.STEP NAME" each. One call, however many runs there are.
# shellcheck shell=sh
exec squeue --steps --noheader --user="$(id -un)" --Format=JobID:20,StepID:60,StepName:256
