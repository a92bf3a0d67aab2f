# shellcheck shell=bash disable=SC2154 # what the page sets: see slurm.sh
# One srun that survives its controller: it is called again where the controller was away before any rank began, and ended
# where all ranks have ended and it stays, as it does when a node's slurmstepd was killed.

# How often srun is called, and how long it is left alone between two calls.
step_tries=60 step_pause_s=5
# How often the ranks' marks are looked at, and how long srun may stay after the last of them.
step_look_s=10 step_grace_s=60
# How long after a rank has failed srun may take to end the others: TERM, Slurm's KillWait, KILL.
step_lost_s=180
# The size of the job's output when srun was called.
step_printed=0
CONTROLLER_AWAY='Unable to confirm allocation|Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted'
CONTROLLER_AWAY+='|Unable to establish controller machine|Connection (refused|timed out|reset by peer)|temporarily unable'
CONTROLLER_AWAY+='|Transport endpoint is not connected|(Job is pending execution|Invalid job id specified|already completing or completed)$'

# Stays until srun has ended for good, and returns its code.
wait_for_step() {
  local code code_of_marks tries watcher
  for ((tries = 1; ; tries++)); do
    watch_step "$launcher" &
    watcher=$!
    disown "$watcher"
    code=0
    wait_for "$launcher" || code=$?
    kill "$watcher" 2>/dev/null || true
    if step_is_gone; then
      read_marks
      return "$code_of_marks"
    fi
    if ((code == 0 || tries >= step_tries)) || [[ -n "$cancelled" ]] || ! declare -F ranks >/dev/null; then break; fi
    if step_has_begun || ! controller_was_away "$step_printed"; then break; fi
    say "srun could not start the ranks while Slurm's controller was away: trying again (${tries})"
    sleep "$step_pause_s" &
    wait_for $! || true
    if [[ -n "$cancelled" ]]; then break; fi
    # No rank has begun: it is that of a server, whose srun did not find the controller either.
    if ! is_stale; then rm -f failure.json ".ended/$TRAINJOB_ATTEMPT".*; fi
    step_printed=$(size_of_output)
    ranks &
    launcher=$!
    if [[ -n "$usr1" ]]; then
      usr1=received
      keep_asking
    fi
  done
  return "$code"
}

# tell_steps NAME [OTHER]: TERM to the steps of this name, but for step OTHER.
tell_steps() {
  local step name
  while IFS='|' read -r step name; do
    # Of an element of an array Slurm writes ARRAY_ELEMENT.STEP.
    step=${step##*.}
    if [[ "$name" == "$1" && "$step" != "${2:-}" ]]; then
      within_limit scancel --signal=TERM "$job.$step" 2>/dev/null || true
    fi
  done < <(within_limit squeue --steps --noheader --jobs="$job" --format='%i|%j' 2>/dev/null)
}

size_of_output() { stat -c %s logs/scheduler.out 2>/dev/null || echo 0; }

# Rank 0 leaves this script's word when it begins: on_each_node.sh.
step_has_begun() {
  local word
  read_word .began
  [[ "$word" == "$TRAINJOB_TOKEN" ]]
}

# controller_was_away BYTES: what srun has printed since this job's output had so many.
controller_was_away() { tail -c "+$(($1 + 1))" logs/scheduler.out 2>/dev/null | grep -qE "$CONTROLLER_AWAY"; }

# watch_step PID
watch_step() {
  local waited_s=0
  trap - EXIT TERM INT HUP USR1
  # What sleeps here is no process of the run's.
  export -n TRAINJOB_RUN_DIR
  # Whoever reads this script's output waits for nobody who sleeps.
  while sleep "$step_look_s" >/dev/null 2>&1 && kill -0 "$1" 2>/dev/null; do
    if others_are_lost; then
      say "a rank failed more than ${step_lost_s} s ago, and others have neither ended nor been ended: the daemon of their node is gone, so this job ends without them"
      write_word .step_ended "$TRAINJOB_TOKEN"
      kill -KILL "$1" 2>/dev/null
      return 0
    fi
    if ! all_ranks_have_ended; then continue; fi
    write_word step_gone "$TRAINJOB_ATTEMPT"
    if ((waited_s >= step_grace_s)); then
      say "all ranks ended ${waited_s} s ago and srun has not: the daemon of its step is gone, so this job ends without it"
      write_word .step_ended "$TRAINJOB_TOKEN"
      kill -KILL "$1" 2>/dev/null
      return 0
    fi
    waited_s=$((waited_s + step_look_s))
  done
  rm -f step_gone
}

step_is_gone() {
  local word
  read_word .step_ended
  [[ "$word" == "$TRAINJOB_TOKEN" ]]
}

# A rank that fails has srun end the others, which leave marks.
others_are_lost() {
  local since clock_s code_of_marks
  if all_ranks_have_ended || [[ ! -d .ended ]]; then return 1; fi
  read_marks
  if ((code_of_marks == 0)); then return 1; fi
  since=$(stat -c %Y .ended) && read_clock && ((${clock_s%.*} - since > step_lost_s))
}

# Whether every rank has ended with 0, and none because it was told to end, or asked to stop.
all_ranks_have_succeeded() {
  local code_of_marks
  if [[ -e .terminated.$TRAINJOB_ATTEMPT || -e requeue ]] || ! all_ranks_have_ended; then return 1; fi
  read_marks
  ((code_of_marks == 0))
}
