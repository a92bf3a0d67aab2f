# shellcheck shell=bash
# V-IPU partitions that a run makes for itself, and that go with it. The file `partition` holds the name of one that is
# this run's to remove, the file .vipu the program that can remove it: a prologue may have put it on the path.
# TRAINJOB_PARTITION is the name; the page sets TRAINJOB_OWN_PARTITION, the options of `vipu create partition`, and
# TRAINJOB_REMOVES_PARTITION where the partition goes with the job.
TRAINJOB_OWN_PARTITION=() TRAINJOB_REMOVES_PARTITION=''

# A partition that does not exist when the run begins is made by poprun, for this run.
note_partition() {
  local listed
  # No answer says nothing about the partition: then it is not this run's to remove.
  if listed=$(vipu list partitions 2>/dev/null) && ! grep -qwF -e "$TRAINJOB_PARTITION" <<<"$listed"; then
    write_word partition "$TRAINJOB_PARTITION"
  fi
}

# make_partition OPTION…
make_partition() (
  cd -- "$TRAINJOB_RUN_DIR" || exit 1
  if ! command -v vipu >.vipu; then
    say "vipu is not on PATH of this node, and this job makes its own partition with it: load it in prologue:"
    exit 1
  fi
  # An attempt that was killed, or whose node has died, could not remove its own.
  remove_partition
  if vipu get partition "$TRAINJOB_PARTITION" >/dev/null 2>&1; then return 0; fi
  write_word partition "$TRAINJOB_PARTITION"
  vipu create partition "$TRAINJOB_PARTITION" "$@"
)

# in_own_partition poprun OPTION…: removed here, where what the prologue has set for vipu still holds, and by the script
# once more, in case this shell is killed. Never returns.
in_own_partition() {
  make_partition "${TRAINJOB_OWN_PARTITION[@]}"
  if [[ -z "$TRAINJOB_REMOVES_PARTITION" ]]; then exec "$@"; fi
  trap remove_partition EXIT
  trap : TERM INT HUP
  "$@"
  exit
}

# Slurm gives a job that is being ended half a minute. If the server does not answer, the note stays, for
# `trainjob cancel`.
remove_partition() {
  local vipu=vipu name listed
  cd -- "$TRAINJOB_RUN_DIR" || return 0
  if is_stale || [[ ! -s partition ]]; then return 0; fi
  if [[ -s .vipu ]]; then read -r vipu <.vipu; fi
  read -r name <partition
  listed=$(timeout 10 "$vipu" list partitions 2>/dev/null) || return 0
  if grep -qwF -e "$name" <<<"$listed" && ! timeout 10 "$vipu" remove partition "$name"; then return 0; fi
  rm -f partition
}
