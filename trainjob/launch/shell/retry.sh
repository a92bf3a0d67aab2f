# shellcheck shell=bash disable=SC2154 # what the page and requeue.sh set
# Attempts that ask for more memory or time than the one before, which ran out of it. Slurm changes no job that has begun, so
# another job continues the run. The page has the options of each in order. `.retries`: how often the run has asked for
# more memory and for more time, and the last attempt after which it did.

# may_ask_for_more mem|time: notes that this attempt is followed by one that asks for more; fails where none may.
may_ask_for_more() {
  local mem=0 time=0 last='' more options
  if asks_for_more "$TRAINJOB_ATTEMPT"; then return 0; fi
  if ((retries == 0)) || [[ -e stop ]]; then return 1; fi
  if [[ "$1" == mem && "${#retry_mem[@]}" == 0 || "$1" == time && "${#retry_time[@]}" == 0 ]]; then return 1; fi
  read_retries
  if ((mem + time >= retries)); then
    say "$((mem + time)) attempts have asked for more, and retry.attempts is $retries: not started again"
    return 1
  fi
  if [[ "$1" == mem ]]; then
    options=("${retry_mem[@]}") more=$((++mem))
  else
    options=("${retry_time[@]}") more=$((++time))
  fi
  if ((more > ${#options[@]})); then
    say "the last attempt had the most that it may ask for (${options[*]: -1}): not started again"
    return 1
  fi
  if starts_are_used_up; then return 1; fi
  write_word .retries "$mem $time $TRAINJOB_ATTEMPT"
  note_event retry "$1 ${options[more - 1]}"
  say "the next attempt asks for more: ${options[more - 1]}"
}

# read_retries: sets mem, time and last of its caller. Matched before arithmetic sees them: see number_in.
read_retries() {
  if [[ -s .retries ]]; then read -r mem time last <.retries || true; fi
  if [[ ! "$mem $time $last" =~ ^[0-9]{1,9}\ [0-9]{1,9}\ [0-9]{0,9}$ ]]; then mem=0 time=0 last=''; fi
}

# asks_for_more ATTEMPT: whether the one after it asks for more than it had.
asks_for_more() {
  local mem=0 time=0 last=''
  read_retries
  [[ "$last" == "$1" ]]
}

# Prints sbatch's options for what the run has come to ask for, one a line.
options_for_more() {
  local mem=0 time=0 last=''
  read_retries
  if ((mem > 0 && mem <= ${#retry_mem[@]})); then printf '%s\n' "${retry_mem[mem - 1]}"; fi
  if ((time > 0 && time <= ${#retry_time[@]})); then printf '%s\n' "${retry_time[time - 1]}"; fi
}
