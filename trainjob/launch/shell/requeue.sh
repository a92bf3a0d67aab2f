# shellcheck shell=bash disable=SC2034,SC2154 # what the page sets, and record.sh reads: see slurm.sh
# How a job under Slurm continues: Slurm requeues it, or it requeues itself, or it submits its follow-up. Slurm sends TERM
# for scancel, for the time limit, for a preemption and before a requeue by hand, and only the controller can tell which.

# What the controller showed of the job when it no longer ran, for when it does not answer later.
shown_ending=''
# What a rehearsal redirects. A follow-up job is rehearsed as well.
REDIRECTS=(
  TRAINJOB_PYTHON TRAINJOB_PROLOGUE TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_INTERFACE TRAINJOB_CONTAINER
  TRAINJOB_MAX_UPDATES
)

begin_job() {
  local progress automatic='' last_nodes='' last_job word
  name_job
  count_restarts
  progress=$(progress_so_far)
  read_word job_id
  last_job=$word
  if ((restarts > 0)) || [[ "$job" == "$last_job" || -n "$follows" ]]; then automatic=1; fi
  if [[ -n "$automatic" ]]; then refuse_needless_start "$last_job"; fi
  if [[ -n "$automatic" ]]; then last_nodes=$(nodes_of_last_attempt); fi
  begin_attempt
  write_word job_id "$job"
  keep_word .nodes "${SLURM_JOB_NODELIST:-}"
  remove .bad_node .out_of_memory
  # What was asked for more of was for one submission.
  if [[ -z "$automatic" ]]; then remove .retries; fi
  note_failed_nodes "$last_nodes"
  count_start "$automatic" "$progress"
  # A script that died with its node could not.
  if [[ -n "$follows" ]]; then pass_on_waiting "$follows" "$job"; fi
  if [[ -n "$queues_follow_up" ]]; then queue_follow_up; fi
}

# refuse_needless_start LAST_JOB. A preemption and the script may both have asked for a requeue: the second one finds
# nothing left to do. Nor does a follow-up job that the script before it was killed too early to cancel.
refuse_needless_start() {
  local word
  read_word state
  if [[ "$word" == COMPLETED ]]; then
    say "the run is complete, and Slurm has started its job once more: nothing to do"
    # The script may have died with its node before it could.
    drop_follow_up
  elif [[ -n "$follows" && "$1" != "$follows" && "$1" != "$job" ]]; then
    say "this job was to continue after job $follows, and job $1 has continued the run since: nothing to do"
  elif [[ -n "$follows" && "$word" == CANCELLED ]] && ((restarts == 0)); then
    say "the run was cancelled, so this job, which was to continue it, has nothing to do: trainjob resume continues"
  else
    return 0
  fi
  exit 0
}

# An element of an array is named by both numbers: the array's own number would mean all of them.
name_job() {
  job=$SLURM_JOB_ID
  if [[ -n "${SLURM_ARRAY_JOB_ID:-}" ]]; then job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi
}

# How often Slurm itself says that it has started this job again: see forget_another_jobs_numbers.
count_restarts() {
  restarts=0
  if [[ "${SLURM_RESTART_COUNT:-0}" =~ ^[0-9]{1,9}$ ]]; then restarts=$((10#${SLURM_RESTART_COUNT:-0})); fi
}

# What the controller shows of a job, or of this one; nothing where it does not answer. scontrol writes times as its own time
# zone has them, in which an hour comes twice each year: here in UTC.
show_job() {
  TZ=UTC0 within_limit scontrol show job -o "${1:-$job}" 2>/dev/null || true
}

# The newest checkpoint; of a command, which keeps none of ours, what it wrote into its marker, else the last update that was
# read from what it prints. Nothing: not known.
progress_so_far() {
  local newest=$counted_from checkpoint
  for checkpoint in checkpoints/update-*; do
    if [[ -e "$checkpoint" ]]; then newest=${checkpoint##*/}; fi
  done
  if [[ -z "$newest" && -s requeue ]]; then read -r newest _ <requeue || true; fi
  if [[ -z "$newest" && -f progress.json ]]; then
    newest=$(head -c 4096 progress.json | sed -n 's/.*"update": \([0-9]\{1,15\}\),.*/\1/p')
  fi
  printf '%s\n' "$newest"
}

# count_start AUTOMATIC PROGRESS. Only starts without a user's request are counted: a run may be resumed by hand at any time.
count_start() {
  local starts=0 same=0 last=''
  if [[ -n "$1" && -s .starts ]]; then read -r starts same last <.starts || true; fi
  # Matched before arithmetic sees them: see number_in.
  if [[ ! "$starts $same" =~ ^[0-9]{1,9}\ [0-9]{1,9}$ ]]; then starts=0 same=0; fi
  starts=$((10#$starts + 1)) same=$((10#$same))
  # An attempt that has more may get further from where the last one stood.
  if [[ -z "$2" || "$2" != "$last" ]] || asks_for_more "$((TRAINJOB_ATTEMPT - 1))"; then same=0; fi
  same=$((same + 1))
  write_word .starts "$starts $same $2"
  if ((same > 2)); then
    say "two attempts in a row got no further than $2: not started again. Look at the logs, then: trainjob resume"
    exit 1
  fi
  if ((starts > max_attempts)); then
    say "this is start $starts and max_attempts is $max_attempts: not started again. To continue: trainjob resume"
    exit 1
  fi
}

# end_job CODE
end_job() {
  local word
  if is_stale; then return 0; fi
  ending_code=$(code_of_ranks "$1")
  end_attempt "$ending_code" facts_of_job
  # A script may outlive its node, and the job that continues has begun: what follows is its business now.
  if is_stale; then return 0; fi
  if [[ "$state" == REQUEUED ]]; then note_bad_nodes; fi
  case $next in
    # With `||`, what a full disk refuses does not end the script before it has recorded the end.
    again) start_again || true ;;
    more*) { ask_for_more "${next#more }"; start_again; } || true ;;
    elsewhere) start_elsewhere ;;
    forget) scancel "$job" 2>/dev/null || true ;;
  esac
  read_word state
  if ! is_stale && [[ "$word" != REQUEUED ]]; then drop_follow_up; fi
  end_script "$1"
}

# srun returns its own code, 143, when it had to end the other ranks; the launcher knows which failed first, and how.
code_of_ranks() {
  local first=''
  if (($1 != 0)) && [[ -s failure.json ]]; then
    first=$(sed -n 's/^ *"exit_code": \([0-9]*\).*/\1/p' failure.json)
  fi
  printf '%s\n' "${first:-$1}"
}

# facts_of_job CODE: what only the controller, and what the page says, can tell.
facts_of_job() {
  local shown starts=1 clock_s began_s
  read_clock && began_s=${clock_s%.*}
  shown=$(show_job)
  # Only a refusal that came at once leaves the time to ask again: Slurm kills the script 30 s after TERM.
  if [[ -z "$shown$shown_ending" ]] && read_clock && ((${clock_s%.*} - began_s < 5)); then
    sleep 1
    shown=$(show_job)
  fi
  shown=${shown:-$shown_ending}
  facts+=(scheduler "restarts=$restarts" "shown=$shown" "preemption=$preemption" "max_attempts=$max_attempts")
  if [[ "$shown" == *' JobState=NODE_FAIL '* || -z "$shown" ]] && follow_up_continues; then facts+=(follows); fi
  if [[ -e requeue ]] && every_node_is_to_blame; then facts+=(blamed); fi
  if [[ -e .out_of_memory && ! -e requeue ]] && may_ask_for_more mem; then facts+=(more_mem); fi
  if [[ "$shown" == *' Reason=TimeLimit '* ]] && may_ask_for_more time; then facts+=(more_time); fi
  if [[ -n "${SLURM_JOB_NUM_NODES:-}" ]] && ! is_group && ! all_ranks_have_ended; then facts+=(awaited); fi
  if all_ranks_have_succeeded; then facts+=(succeeded); fi
  if [[ -n "${element_node:-}" ]] && node_is_lost "$1" "$shown"; then facts+=(node_lost); fi
  if [[ "$shown_when_told" =~ \ PreemptTime=[0-9] ]]; then facts+=(preempted); fi
}

# judge_once_more: by what the controller shows now, which alone knows why the job no longer runs.
judge_once_more() {
  local cancelled=1
  judge "$ending_code" facts_of_job
}

# By the controller; where it refuses, scontrol is missing or the next attempt asks for more, by another job that waits for
# this one to end. The end is recorded once the start is certain, or refused.
start_again() {
  local follow_up continued more=''
  if asks_for_more "$TRAINJOB_ATTEMPT"; then
    more=1
  elif is_requeued; then
    return 0
  fi
  # One that was queued before the work started may not exclude what has failed since and asks for no more, and two must
  # not start.
  if [[ -n "$more" || -s excluded_nodes ]] || ! follow_up=$(waiting_follow_up); then
    drop_follow_up
    # To ask takes minutes where the controller is slow, and a script may outlive its node: then its job goes on without it.
    if is_stale; then return 0; fi
    # One that can't be dropped continues the run: two must not start.
    if ! follow_up=$(known_follow_up) || [[ -z "$follow_up" || "$follow_up" == "$job" ]]; then
      # Killed before the answer, or started again by mistake, the next script looks for this job.
      write_word .follow_up unknown
      follow_up=$(submit_follow_up afterany) || follow_up=''
    fi
  fi
  if is_stale; then return 0; fi
  if [[ -n "$follow_up" ]]; then
    write_word .follow_up "$follow_up"
    # It may have been cancelled in the meantime, which this script, on its way out, does not hear of.
    if ! still_runs; then
      continued=$why
      judge_once_more
      if [[ "$state" != CANCELLED ]]; then state=REQUEUED why=$continued; fi
    fi
    if is_stale; then return 0; fi
    if [[ "$state" == CANCELLED ]]; then
      record_end "$ending_code"
      return 0
    fi
    write_word job_id "$follow_up"
    record_end "$ending_code"
    if [[ -n "$more" ]]; then
      say "job $follow_up, which asks for more, continues after this one"
    else
      say "requeueing is not allowed here: job $follow_up continues after this one"
    fi
    pass_on_waiting "$job" "$follow_up"
  elif [[ -n "$more" ]]; then
    state=FAILED
    if [[ -n "$cancelled" ]]; then state=TIMEOUT; fi
    why="Slurm takes no job with $(options_for_more | paste -sd ' '), which may be more than the partition's limit: not started again"
    record_end "$ending_code"
  else
    # shellcheck disable=SC2034 # record_end says it
    state=STOPPED why="Slurm takes neither a requeue nor a follow-up job: trainjob resume continues from the checkpoint"
    record_end "$ending_code"
  fi
}

# pass_on_waiting OLD NEW: what waits for job OLD to be complete waits for NEW, which continues its run. Where OLD is an
# element, what waits for its whole array waits for NEW and each other element.
pass_on_waiting() {
  local listed waiting on others tries again array=''
  if [[ "$1" == *_* ]]; then array=",afterok:${1%%_*}_*,"; fi
  # The scripts of several elements may do so at once, and undo what another one has done.
  for ((tries = 0; tries < 4; tries++)); do
    if ((tries > 0)); then sleep 1; fi
    listed=$(within_limit squeue --noheader --states=PENDING --user="$(id -un)" --format='%F|%E' 2>/dev/null |
      sed 's/([^)]*)//g' | sort -u) || return 0
    again=''
    while IFS='|' read -r waiting on; do
      on=,$on,
      if [[ -n "$array" && "$on" == *"$array"* ]]; then
        if ! others=$(other_elements "$1"); then
          again=1
          continue
        fi
        on=${on//"$array"/",afterok:$1,$others"}
      fi
      if [[ ! "$waiting" =~ ^[0-9]+$ || "$on" != *",afterok:$1,"* ]]; then continue; fi
      on=${on//,afterok:$1,/,afterok:$2,} on=${on#,}
      if within_limit scontrol update "JobId=$waiting" "Dependency=${on%,}" >/dev/null 2>&1; then
        again=1
        say "job $waiting, which waited for job $1 to be complete, waits for job $2"
      fi
    done <<<"$listed"
    if [[ -z "$again" ]]; then return 0; fi
  done
}

# other_elements JOB: prints what waits for all other elements of the array of JOB, an element, to be complete. One that has
# ended otherwise is among them: what waits for it never starts. Fails where the controller lists none: those that have not
# begun may have no folder.
other_elements() {
  local listed element word folder=$TRAINJOB_SUBMITTED_IN/tasks
  if ! listed=$(within_limit squeue --noheader --array --jobs="${1%%_*}" --format=%K 2>&1); then
    # Of an array whose elements have all ended.
    [[ "$listed" == *'Invalid job id'* ]] || return 1
  elif [[ "$listed" == *[!0-9[:space:]]* ]]; then
    return 1
  fi
  { printf '%s\n' "$listed" && ls "$folder"; } | grep -E '^[0-9]+$' | sort -nu | while read -r element; do
    read_word "$folder/$element/state"
    if [[ "$word" == COMPLETED || "$1" == *"_$element" ]]; then continue; fi
    read_word "$folder/$element/job_id"
    printf 'afterok:%s,' "${word:-${1%%_*}_$element}"
  done || true
}

# Fails where the controller refuses.
is_requeued() {
  local refused
  if ! still_runs; then
    refused='already completing or completed'
  elif refused=$(scontrol requeue "$job" 2>&1); then
    if ! is_stale; then record_end "$ending_code"; fi
    start_elsewhere
    return 0
  fi
  # It waits again by itself, was cancelled, or was requeued and the answer was lost.
  if [[ "$refused" == *@('is pending execution'|'already completing or completed')* ]] || ! still_runs; then
    judge_once_more
    # It ends, and Slurm does not start it again: a follow-up job can.
    if [[ "$next" == again ]]; then return 1; fi
    if ! is_stale; then record_end "$ending_code"; fi
    return 0
  fi
  return 1
}

# Where a job is not requeued, nothing continues the run when its first node dies: so a job waits from the beginning.
queue_follow_up() {
  local follow_up
  if ! follow_up=$(known_follow_up); then
    say "the controller does not say whether a follow-up job of this run waits, so none is queued"
    return 0
  fi
  if [[ -n "$follow_up" && "$follow_up" != "$job" ]] && ! follow_up_has_ended "$follow_up"; then
    write_word .follow_up "$follow_up"
    return 0
  fi
  # If this script is killed before it knows the answer, the next one looks for the job instead of queueing a second.
  write_word .follow_up unknown
  if follow_up=$(submit_follow_up afternotok); then
    write_word .follow_up "$follow_up"
    say "job $follow_up waits, and continues the run if this one ends before it is done"
  else
    # The controller may have taken the job all the same: whoever asks for the follow-up job looks for it.
    say "no follow-up job can be queued: if the first node of this job dies, trainjob resume continues"
  fi
}

# Prints the job that was queued before the work started; nothing if there is none. Fails where that is unknown.
known_follow_up() {
  local queued word code=0
  read_word .follow_up
  queued=$word
  if [[ "$queued" == unknown ]]; then
    queued=$(waiting_job_of_run "$SLURM_JOB_NAME" "${SLURM_ARRAY_TASK_ID:-}") || code=$?
    if ((code == 2)); then return 1; fi
  fi
  printf '%s\n' "$queued"
}

# follow_up_has_ended JOB: whether the controller says so. Without an answer it may wait still, and two would start.
follow_up_has_ended() {
  local shown
  shown=$(within_limit scontrol show job -o "$1" 2>&1) || [[ "$shown" == *'Invalid job id'* ]] || return 1
  [[ "$shown" != *' JobState='@(PENDING|CONFIGURING|RUNNING)' '* ]]
}

# Prints the job that was queued before the work started, where it still waits.
waiting_follow_up() {
  local queued
  queued=$(known_follow_up) || return 1
  if [[ -z "$queued" || "$queued" == "$job" ]]; then return 1; fi
  if [[ "$(show_job "$queued")" != *' JobState=PENDING '* ]]; then return 1; fi
  printf '%s\n' "$queued"
}

# Whether the job that was queued before the work started waits, or has begun already.
follow_up_continues() {
  local word
  read_word .follow_up
  if [[ -z "$word" || "$word" == "$job" ]]; then return 1; fi
  [[ "$(show_job "$word")" == *' JobState='@(PENDING|CONFIGURING|RUNNING)' '* ]]
}

# A run that must not continue leaves no job behind. One that has begun already stays: it continues the run.
drop_follow_up() {
  local queued tries
  queued=$(known_follow_up) || return 0
  if [[ -n "$queued" && "$queued" != "$job" ]]; then
    # One that can't be cancelled is remembered: the next attempt has it as its follow-up job.
    for ((tries = 0; ; tries++)); do
      if ((tries == 4)); then return 0; fi
      if ((tries > 0)); then sleep 2; fi
      if scancel --state=PENDING "$queued" 2>/dev/null || follow_up_has_ended "$queued"; then break; fi
    done
  fi
  rm -f .follow_up
}

# submit_follow_up afterany|afternotok. Called in a shell of its own. The new job would take what Slurm has told this one,
# as its count of restarts, for its own.
submit_follow_up() {
  local name words excluded more=() run=$SLURM_JOB_NAME element=${SLURM_ARRAY_TASK_ID:-} answer follow_up
  excluded=$(nodes_to_exclude)
  mapfile -t more < <(options_for_more)
  cd -- "$TRAINJOB_SUBMITTED_IN" || return 1
  # One that waited for a failure is dropped by Slurm itself when this job is done, even if the controller was down then.
  words=(--parsable --dependency="$1:$job" --kill-on-invalid-dep=yes --job-name="$run" --export="$(redirects)")
  if [[ -n "$element" ]]; then words+=(--array="$element"); fi
  if [[ -n "$excluded" ]]; then words+=(--exclude="$excluded"); fi
  words+=(${more[@]+"${more[@]}"})
  for name in "${!SLURM_@}"; do
    case $name in SLURM_CONF | SLURM_CONF_SERVER | SLURM_JWT | SLURM_CLUSTERS) ;; *) unset "$name" ;; esac
  done
  # A line of its own: sites' plugins print messages, and a number may stand in any of them.
  if answer=$(sbatch "${words[@]}" job.sbatch "$job") &&
    follow_up=$(grep -E -m1 '^[0-9]+(;[A-Za-z0-9_.-]+)?$' <<<"$answer"); then
    printf '%s\n' "${follow_up%%;*}${element:+_$element}"
  else
    sleep 5
    waiting_job_of_run "$run" "$element"
  fi
}

# waiting_job_of_run NAME ELEMENT: prints the newest job of this run that waits and was submitted after this one. The
# controller may have taken a job although its answer was lost: that job would be unknown, and would start. An
# empty list is no proof of the contrary. Fails with 2 where fewer than two questions were answered.
waiting_job_of_run() {
  local tries listed empty=0
  for ((tries = 0; tries < 3; tries++)); do
    if ((tries > 0)); then sleep 5; fi
    listed=$(squeue --noheader --array --states=PENDING --name="$1" --format='%F|%K|%Z' 2>/dev/null) || continue
    # A proxy's error page is no answer.
    if [[ -n "$listed" && "$listed" != *'|'*'|'* ]]; then continue; fi
    empty=$((empty + 1))
    if awk -F '|' -v job="${job%%_*}" -v element="${2:-N/A}" -v folder="$TRAINJOB_SUBMITTED_IN" '
      $1 > job + 0 && $2 == element && substr($0, length($1 $2) + 3) == folder { newest = $1 }
      END { if (newest == "") exit 1; print newest (element == "N/A" ? "" : "_" element) }' <<<"$listed"; then
      return 0
    fi
  done
  return $((empty > 1 ? 1 : 2))
}

# The redirects that are set, as sbatch's --export takes them.
redirects() {
  local name names=NONE
  for name in "${REDIRECTS[@]}"; do
    if [[ -n "${!name:-}" ]]; then names="${names#NONE},$name"; fi
  done
  printf '%s\n' "${names#,}"
}

# scontrol would bring back a job that was cancelled a moment ago.
still_runs() {
  local shown
  shown=$(show_job)
  if [[ -z "$shown" || "$shown" == *' JobState=RUNNING '* ]]; then return 0; fi
  shown_ending=$shown
  return 1
}
