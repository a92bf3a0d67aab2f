# shellcheck shell=bash disable=SC2154 # what the page and requeue.sh set
# Attempts that ask for more memory or time than the one before, which ran out of it. Slurm changes no job that has begun, so
# another job continues the run. The page has the options of each in order. `.retries`: how often the run has asked for
# more memory and for more time, and the last attempt after which it did.

# may_ask_for_more mem|time: fails where no attempt may follow this one that asks for more than it had.
may_ask_for_more() {
  local mem=0 time=0 last='' asked options
  if asks_for_more "$TRAINJOB_ATTEMPT"; then return 0; fi
  if ((retries == 0)) || [[ -e stop ]]; then return 1; fi
  read_retries
  if [[ "$1" == mem ]]; then
    asked=$mem options=(${retry_mem[@]+"${retry_mem[@]}"})
  else
    asked=$time options=(${retry_time[@]+"${retry_time[@]}"})
  fi
  if ((${#options[@]} == 0)); then return 1; fi
  if ((mem + time >= retries)); then
    say "$((mem + time)) attempts have asked for more, and retry.attempts is $retries: not started again"
    return 1
  fi
  if ((asked >= ${#options[@]})); then
    say "the last attempt had the most that it may ask for (${options[*]: -1}): not started again"
    return 1
  fi
}

# ask_for_more mem|time: notes that this attempt is followed by one that does.
ask_for_more() {
  local mem=0 time=0 last='' option
  if asks_for_more "$TRAINJOB_ATTEMPT"; then return 0; fi
  read_retries
  if [[ "$1" == mem ]]; then
    option=${retry_mem[mem++]}
  else
    option=${retry_time[time++]}
  fi
  write_word .retries "$mem $time $TRAINJOB_ATTEMPT"
  note_event retry "$1 $option"
  say "the next attempt asks for more: $option"
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
