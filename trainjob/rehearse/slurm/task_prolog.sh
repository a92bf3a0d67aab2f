#!/bin/sh
# Slurm's TaskProlog: what it prints as `export NAME=value` is set for a job's script and for its tasks. In this way a
# rehearsal's variables reach a job whose own --export=NONE stands as it does on a cluster.
while IFS= read -r line; do
  printf '%s\n' "$line"
done <"${0%/*}/job-environment"
