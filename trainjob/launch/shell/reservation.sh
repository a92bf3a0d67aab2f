# shellcheck shell=bash disable=SC2154 # what record.sh and requeue.sh set
# A job that holds nodes for runs, which begin in it as steps (allocation.sh), and that ends by itself when none has run for
# a while. Each run touches `.used` in this run directory, so that one that is over between two looks counts as well.

# shellcheck source=slurm.sh
. "${BASH_SOURCE[0]%/*}/slurm.sh"

# No ranks of its own meet anywhere.
meet_on_first_node() { :; }

# Only what holds the nodes is left to end: Slurm itself ends the steps.
when_told() {
  shown_when_told=$(show_job)
  kill_group TERM
}

# Nor is there anybody to ask: its runs have limits of their own.
keep_asking() {
  if [[ "$usr1" == passed ]]; then return 0; fi
  usr1=passed
  note_event signal USR1
}

# hold_nodes IDLE_S WARN_S LOOK_S: returns when no step has run for IDLE_S seconds, of which it warns WARN_S before, and just
# before its time limit, by when its runs have ended: for who asked for two hours, that is no failure.
hold_nodes() {
  local idle_s=$1 warn_s=$2 look_s=$3 clock_s unused_s=0 last='' used until
  cd -- "$TRAINJOB_RUN_DIR" || exit 1
  : >.used
  last=$(stat -c %y .used)
  while true; do
    sleep "$look_s"
    # Counted: a clock that is set forward must end nothing.
    unused_s=$((unused_s + look_s))
    used=$(stat -c %y .used 2>/dev/null) || used=$last
    if is_over "$look_s"; then
      tell_idle 'its time has passed: its nodes are released'
      break
    elif [[ "$used" != "$last" ]] || has_steps; then
      last=$used unused_s=0
      tell_idle ''
    elif ((unused_s >= idle_s)); then
      tell_idle "no step has run for $unused_s s: its nodes are released"
      break
    elif ((unused_s >= idle_s - warn_s)) && [[ -z "$told" ]]; then
      read_clock
      printf -v until '%(%H:%M:%S)T' "$((${clock_s%.*} + idle_s - unused_s))"
      tell_idle "idle: its nodes are released at $until unless a run begins in it"
    fi
  done
  # Also if Slurm has warned of its limit meanwhile.
  : >"done"
}

# is_over LOOK_S: whether its time limit comes before the look after the next one.
is_over() {
  local ends clock_s
  [[ "$(show_job)" =~ \ EndTime=([0-9T:-]+) ]] && ends=$(date -u -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) || return 1
  read_clock
  ((ends - ${clock_s%.*} <= 2 * $1 + 2))
}

# Whether a step runs in this job, by srun of anybody; also where the controller does not say, or a proxy's error page does.
has_steps() {
  local listed
  listed=$(within_limit squeue --steps --noheader --jobs="$SLURM_JOB_ID" --format=%i 2>/dev/null) || return 0
  grep -qvE "^($SLURM_JOB_ID\.(batch|extern))?[[:space:]]*$" <<<"$listed"
}

# What `status` shows of it; empty: nothing any more.
told=''
tell_idle() {
  if [[ "$1" == "$told" ]]; then return 0; fi
  told=$1
  note_event idle "$1"
  if [[ -n "$1" ]]; then say "$1"; fi
}
