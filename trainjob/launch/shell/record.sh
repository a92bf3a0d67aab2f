# shellcheck shell=bash disable=SC2034 # the files that source this one use what is set here
# What every job script keeps in its run directory, whatever happens: `attempt`, `state` and `exit_code`, one plain word
# each. The run directory is the working folder. Every `return` of this library names its status: within a trap, where an
# attempt ends, a plain one returns the status that the script ends with.

# Paths of the page may begin with it, and a daemon's environment may lack it: bash then reads the user's entry.
if [[ -z "${HOME:-}" ]]; then
  unset HOME
  export HOME=~
fi

# Where others may read the run, only its owner writes in it, whatever the umask is.
if [[ $(stat -c %a .) != *00 ]]; then umask 022; fi

# Set by the signal handlers of a script that got a signal to end.
cancelled=''
# Set once the disk has refused a word, which is reported once.
disk_refuses=''
# The process that starts the ranks; empty until there is one.
launcher=''
# What judge sets: the state, what comes next, and why.
state='' next='' why='' facts=()
# The seconds after which an attempt without a scheduler ends, and how long before it is asked to checkpoint. Empty: never.
time_limit_s='' time_limit_margin_s=120
# The process that waits for the limit.
limiter=''
# What marks a container as a run's own; its value is the run directory.
TRAINJOB_LABEL=trainjob.run

say() { printf 'trainjob: %s\n' "$1" >&2; }

# write_word FILE WORD. `sync` before `mv`: after a power cut a reader sees the old word or the new one, never an empty
# file.
write_word() {
  local why
  if { printf '%s\n' "$2" >".$1.part"; } 2>/dev/null && { sync ".$1.part" 2>/dev/null || true; } && mv -f ".$1.part" "$1" 2>/dev/null
  then return 0; fi
  # The second try tells why the first one failed.
  if why=$({ printf '%s\n' "$2" >".$1.part" && mv -f ".$1.part" "$1"; } 2>&1); then return 0; fi
  rm -f ".$1.part"
  if [[ -z "$disk_refuses" ]]; then say "file $1 of the run directory can't be written: ${why##*: }"; fi
  disk_refuses=1
  # The disk is full: the word is written over the old one, whose space it takes. Line feeds cover what is longer.
  if [[ -f "$1" ]]; then
    printf '%s\n\n\n\n\n\n\n\n\n\n' "$2" 2>/dev/null 1<>"$1"
  elif ! printf '%s\n' "$2" 2>/dev/null >"$1"; then
    rm -f "$1"
    return 1
  fi
}

# keep_word FILE WORD: a word that only this attempt's own processes read, after it is written: a power cut leaves nobody who
# would, so it starts no process.
keep_word() { { printf '%s\n' "$2" >"$1"; } 2>/dev/null || write_word "$1" "$2"; }

# remove FILE…: a first attempt finds none of them, and then starts no process.
remove() {
  local file there=()
  for file in "$@"; do
    if [[ -e "$file" || -L "$file" ]]; then there+=("$file"); fi
  done
  if ((${#there[@]})); then rm -f "${there[@]}"; fi
}

# read_word FILE: sets `word`, which its caller has as a local name, to the first line of FILE; empty where FILE is missing.
# It starts no process, which takes a thousand times as long as the reading.
read_word() {
  word=''
  # `read` fails at a missing newline, and has read the word all the same.
  if [[ -f "$1" ]]; then read -r word <"$1" || true; fi
}

# number_in FILE: the whole number that FILE holds, without leading zeros; 0 where FILE is missing or empty. A word is
# matched before any arithmetic sees it, which would run the $(…) of an array index.
number_in() {
  local word
  read_word "$1"
  if [[ ! "$word" =~ ^[0-9]{0,9}$ ]]; then
    say "file $1 of the run directory is damaged: $(printf '%q' "${word:0:80}") is not a whole number. Remove it, then: trainjob resume"
    return 1
  fi
  printf '%d\n' "$((10#${word:-0}))"
}

# Sets clock_s to the seconds since 1970, with a fraction where bash knows it (since 5.0), which it writes as the locale does.
# The library reads the clock here alone.
read_clock() {
  clock_s=${EPOCHREALTIME:-} clock_s=${clock_s/,/.}
  if [[ -z "$clock_s" ]]; then printf -v clock_s '%(%s)T' -1; fi
}

# note_event WHAT [DETAIL [TIME [ATTEMPT]]]: a line of `events`, which tells what happened to the run, and when. Without it
# (a full disk) nothing but that account is lost.
note_event() {
  if [[ -e events && ! -f events ]]; then return 0; fi
  read_clock
  { printf '%s\t%s\t%s\t%s\n' "${3:-$clock_s}" "${4:-$TRAINJOB_ATTEMPT}" "$1" "${2:-}" >>events; } 2>/dev/null || true
}

# note_begin LAST: an attempt LAST that was killed has noted no end: the run's last sign of life stands for it.
note_begin() {
  if [[ -f events && "$(tail -n 1 events)" != *$'\tended\t'* ]]; then
    note_event lost '' "$(stat -c %Y progress.json 2>/dev/null || stat -c %Y events)" "$1"
  fi
  note_event began "${SLURM_JOB_NODELIST:-}"
}

# The last attempt's state is removed before the new number is written: no reader may see one next to the other.
begin_attempt() {
  local last
  if ! last=$(number_in attempt); then
    write_word exit_code 1
    write_word state FAILED
    exit 1
  fi
  export TRAINJOB_ATTEMPT=$((last + 1))
  remove state requeue "done" ".ended/$TRAINJOB_ATTEMPT".* .request .asked.* .saved.* .bypassed.* .terminated.* failure.json exit_code .store-*
  write_word attempt "$TRAINJOB_ATTEMPT"
  note_begin "$last"
  write_word state RUNNING
  if [[ -t 2 ]]; then tell_what_runs; fi
}

# Somebody has started the page by hand: the page's own words for what runs, and where its ranks write.
tell_what_runs() {
  sed -n 's/^# \(Job \|Ranks run\)/trainjob: \1/p' "${0##*/}" >&2 2>/dev/null || true
  say "attempt $TRAINJOB_ATTEMPT: ranks write to $PWD/logs"
}

# trap_each CALL SIGNAL…: notes each of these signals by its name when it comes, and then does CALL.
trap_each() {
  local call=$1 name
  shift
  for name in "$@"; do
    # shellcheck disable=SC2064 # its name now
    trap "note_event signal $name; $call" "$name"
  done
}

# A newer attempt owns the files: an older one leaves them alone.
is_stale() {
  local word
  read_word attempt
  [[ "$word" != "${TRAINJOB_ATTEMPT:-none}" ]]
}

# end_attempt CODE [FACTS]: FACTS names the function that adds to `facts` what launch/ending.py is to know beside the code.
end_attempt() {
  trap '' TERM INT HUP USR1
  # Once it has sent TERM it has ended, and its number may be another process's. It looks each second whether this script is left.
  if [[ -n "$limiter" && -z "$cancelled" ]]; then kill "$limiter" 2>/dev/null || true; fi
  if is_stale; then return 0; fi
  judge "$@"
  # To ask takes a moment, in which a newer attempt may have begun.
  if is_stale; then return 0; fi
  # Slurm may kill the script while it sees to another start: a run that nothing starts again is never called REQUEUED.
  if [[ "$next" != @(again|more*) ]]; then record_end "$1"; fi
}

# end_script CODE: a job that waits for this script's 0 waits for a complete run.
end_script() {
  local word
  read_word state
  if [[ "$1" == 0 && "$word" != COMPLETED ]] && ! is_stale; then exit 75; fi
}

# record_end CODE
record_end() {
  local word
  # On a full disk there may be no file to write over, and the state matters more.
  write_word exit_code "$1" || true
  if [[ -n "$why" ]]; then say "$why"; fi
  # The ranks' launchers write no events: the first request that a rank's handler got.
  read_word ".asked.$TRAINJOB_ATTEMPT"
  if [[ -n "$word" ]]; then note_event asked "${word% *}" "${word#* }"; fi
  note_bypassing
  note_event ended "$state $1${why:+ $why}"
  write_word state "$state"
  if [[ -t 2 ]]; then say "$state"; fi
}

# Signals that launchers got, and this script did not.
note_bypassing() {
  local noted word
  for noted in ".bypassed.$TRAINJOB_ATTEMPT."*; do
    read_word "$noted"
    if [[ -z "$word" ]] || grep -q $'\t'"$TRAINJOB_ATTEMPT"$'\tsignal\t'"${noted##*.}\$" events; then continue; fi
    note_event bypassed "${noted##*.} ${word#* }" "${word%% *}"
  done
}

# judge CODE [FACTS]: sets state, next and why, as launch/ending.py has them.
judge() {
  local python printed word judged=()
  facts=("code=$1")
  if [[ -n "$cancelled" ]]; then facts+=(signalled); fi
  read_word .time_limit
  if [[ -n "$cancelled" && "$word" == "$TRAINJOB_ATTEMPT" ]]; then facts+=(limit); fi
  if [[ -n "${2:-}" ]]; then "$2" "$1"; fi
  # This host's own comes first: the ranks' may lie on storage that is slow at the end of a job. Isolated from both.
  read_word .python
  for python in python3 "$word"; do
    if [[ -z "$python" ]]; then continue; fi
    printed=$(cd code && within_limit "$python" -s -S -E -m trainjob.launch.ending "$TRAINJOB_RUN_DIR" "${facts[@]}" 2>/dev/null) || true
    mapfile -t judged <<<"$printed"
    state=${judged[0]:-} next=${judged[1]:-} why=${judged[2]:-}
    if [[ "$state" == @(COMPLETED|STOPPED|FAILED|CANCELLED|TIMEOUT|REQUEUED) ]]; then return 0; fi
  done
  judge_without_python "$1"
}

# within_limit CALL…: Slurm kills the script 30 s after TERM, so nothing may wait for what hangs.
within_limit() {
  if command -v timeout >/dev/null; then timeout -k 1 10 "$@"; else "$@"; fi
}

# judge_without_python CODE: the least that a script must know to end well.
judge_without_python() {
  next=- why="judged by its files alone: no Python 3.8 or newer starts on $HOSTNAME"
  if [[ -n "$cancelled" ]]; then
    state=CANCELLED
    if [[ " ${facts[*]} " == *' limit '* ]]; then state=TIMEOUT; fi
  elif [[ -e requeue ]]; then
    state=STOPPED
    if [[ " ${facts[*]} " == *' scheduler '* && ! -e stop ]]; then state=REQUEUED next=again; fi
  elif [[ "$1" == 77 || ("$1" == 0 && -e .asked.$TRAINJOB_ATTEMPT && ! -e "done") ]]; then
    state=STOPPED
  elif [[ "$1" == 0 && " ${facts[*]} " == *' awaited '* && " ${facts[*]} " != *' JobState=RUNNING '* ]]; then
    state=FAILED
    if [[ " ${facts[*]} " == *' follows '* ]]; then state=REQUEUED next=elsewhere; fi
  elif [[ "$1" == 0 ]]; then
    state=COMPLETED
  else
    state=FAILED
  fi
}

# Told of a limit, this script tells itself what a scheduler would: USR1 before it, TERM at its end.
watch_time_limit() { begin_limiter; }

begin_limiter() {
  if [[ -z "$time_limit_s" ]]; then return 0; fi
  {
    trap - EXIT TERM INT HUP USR1
    # What sleeps here is no process of the run's.
    export -n TRAINJOB_RUN_DIR
    if sleep_beside_script $((time_limit_s - time_limit_margin_s)); then
      say "the time limit of $time_limit_s s is near: the ranks are asked to checkpoint and stop"
      kill -USR1 $$
      if sleep_beside_script "$time_limit_margin_s"; then
        say "the time limit of $time_limit_s s has passed"
        write_word .time_limit "$TRAINJOB_ATTEMPT"
        kill -TERM $$
      fi
    fi
  } &
  limiter=$!
  disown "$limiter"
}

# sleep_beside_script SECONDS: fails if the script ends before that.
sleep_beside_script() {
  local clock_s until_s
  read_clock
  until_s=$((${clock_s%.*} + $1))
  while read_clock && ((${clock_s%.*} < until_s)); do
    sleep 1 >/dev/null 2>&1
    kill -0 $$ 2>/dev/null || return 1
  done
}

# takes_usr1 PID: whether USR1 no longer ends the ranks' shell. Its first command ignores USR1, and what it then runs in
# its own place inherits that; but a shell that has just been forked would end.
takes_usr1() {
  local ignored
  if [[ ! "/proc/$1/exe" -ef "/proc/$$/exe" ]]; then return 0; fi
  ignored=$(sed -n 's/^SigIgn:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null) || return 0
  ((16#${ignored:-0} & 0x200))
}

# `wait` returns early when a trap runs; bash keeps the status of a child that has ended for a later `wait`. Where the
# signal comes as the child ends, bash 5.2 may lose it and say -1 from then on: the marks have it too.
wait_for() {
  local code=0 code_of_marks word
  while kill -0 "$1" 2>/dev/null; do
    wait "$1" || true
  done
  wait "$1" || code=$?
  if ((code < 0)); then
    code=1
    read_word ".ended/$TRAINJOB_ATTEMPT.all"
    if [[ "$word" =~ ^[0-9]{1,3}$ ]]; then
      code=$((10#$word))
    elif [[ -z "$word" ]] && { [[ -e "done" ]] || all_ranks_have_ended; }; then
      read_marks
      code=$code_of_marks
    fi
  fi
  return "$code"
}

# A mark is left for each rank when it has ended: .ended/ATTEMPT.RANK, with the exit code; and ATTEMPT.all, with its own, by
# what runs them all for this script.
all_ranks_have_ended() {
  local marks=(.ended/"$TRAINJOB_ATTEMPT".[0-9]*)
  # A job on a range of nodes with one rank each does not state their number.
  local ranks_of_job=${job_ranks:-$((${SLURM_JOB_NUM_NODES:-0} * ${SLURM_NTASKS_PER_NODE:-1}))}
  [[ -e "${marks[0]}" && "${#marks[@]}" -ge "$ranks_of_job" ]] && ((ranks_of_job > 0))
}

# Sets code_of_marks, which its caller has as a local name, to the first code of the marks that is not 0.
read_marks() {
  local mark word
  code_of_marks=0
  for mark in .ended/"$TRAINJOB_ATTEMPT".[0-9]*; do
    read_word "$mark"
    if [[ ! "$word" =~ ^[0-9]{0,9}$ ]]; then word=1; fi
    code_of_marks=$((10#${word:-0}))
    if ((code_of_marks > 0)); then return 0; fi
  done
}
