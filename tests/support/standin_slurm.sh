#!/bin/bash
# One program for sbatch, squeue, scontrol, scancel and sacct: a Slurm of files, whose jobs run nothing. `fault.PROGRAM`
# in the folder above holds what goes wrong with that program, and how often (no number: always).
home=${BASH_SOURCE[0]%/*}/..
program=${0##*/}
# Another Slurm, for anybody who sets SLURM_CONF.
jobs=$home/jobs${SLURM_CONF:+-${SLURM_CONF##*/}}
mkdir -p "$jobs"
printf '%s\n' "$*" >>"$home/$program.calls"

# As if the limit of the question were over, for which nobody has to wait then: `timeout` knows it by SIGALRM. A caller
# that sets no limit waits for long.
hang() {
  if [[ "$(</proc/$PPID/comm)" == timeout ]]; then kill -ALRM "$PPID"; fi
  exec sleep 1000
}

say_nothing_more() { exec >/dev/null 2>&1; }

fault=''
if [[ -s "$home/fault.$program" ]]; then
  read -r fault times <"$home/fault.$program"
  if [[ -n "$times" ]]; then
    if ((times > 1)); then echo "$fault $((times - 1))" >"$home/fault.$program"; else rm "$home/fault.$program"; fi
  fi
fi
case $fault in
  hang) hang ;;
  stall) exec sleep 1000 ;;
  down) echo "$program: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  garbage) printf '<html>\n502 Bad Gateway | nginx\n</html>\n'; exit 0 ;;
  binary) head -c 300 /dev/urandom; exit 0 ;;
  empty) exit 0 ;;
  refused) echo "$program: error: Access/permission denied" >&2; exit 1 ;;
  killed) kill -SEGV $$ ;;
  says) echo "$program: lua: moved to partition short" >&2 ;;
  hang-after | lost | lost+down | silent-after | garbage-after) exec 3>&1 4>&2; say_nothing_more ;;
esac

get() { cat "$jobs/$1/$2"; }
all() { find "$jobs" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n; }

do_sbatch() {
  local word name='' number
  for word in "$@"; do case $word in --job-name=*) name=${word#*=} ;; esac; done
  {
    flock 9 # two at once would take one number
    number=$(($(cat "$home/last" 2>/dev/null || echo 100) + 1))
    echo "$number" >"$home/last"
    mkdir -p "$home/new"
    echo RUNNING >"$home/new/state"
    echo "$name" >"$home/new/name"
    pwd -P >"$home/new/folder"
    echo None >"$home/new/reason"
    echo 5:00 >"$home/new/elapsed"
    mv "$home/new" "$jobs/$number"
  } 9>"$home/lock"
  echo "$number"
}

do_squeue() {
  local number
  for number in $(all); do
    echo "$number|$number|N/A|$(get "$number" state)|$(get "$number" reason)|N/A|$(get "$number" elapsed)|10:00|5:00|n1|$(get "$number" folder)"
  done
}

do_scontrol() {
  local number=${4:-}
  if [[ "$1 $2" != "show job" ]]; then exit 0; fi
  if [[ -n "$number" && ! -d "$jobs/$number" ]]; then
    echo "slurm_load_jobs error: Invalid job id specified" >&2
    exit 1
  fi
  if [[ -z "$number" && -z "$(all)" ]]; then echo "No jobs in the system"; fi
  for number in ${number:-$(all)}; do
    echo "JobId=$number JobName=$(get "$number" name) JobState=$(get "$number" state) Reason=$(get "$number" reason)" \
      "Restarts=0 RunTime=00:00:01 TimeLimit=00:10:00 StartTime=Unknown NodeList=n1 WorkDir=$(get "$number" folder) StdErr="
  done
}

do_scancel() {
  local word name='' numbers=()
  for word in "$@"; do
    case $word in
      --name=*) name=${word#*=} ;;
      [0-9]*) numbers+=("$word") ;;
    esac
  done
  for word in "${numbers[@]}"; do
    if [[ ! -d "$jobs/$word" ]]; then
      echo "scancel: error: Kill job error on job id $word: Invalid job id specified" >&2
      exit 1
    fi
    if [[ -z "$name" || "$name" == "$(get "$word" name)" ]]; then echo CANCELLED >"$jobs/$word/state"; fi
  done
}

do_sacct() {
  echo "Slurm accounting storage is disabled" >&2
  exit 1
}

"do_$program" "$@" || exit
if [[ "$fault" == lost+down ]]; then for other in squeue scontrol; do echo down >"$home/fault.$other"; done; fi
case $fault in
  hang-after) hang ;;
  lost | lost+down) echo "$program: error: Socket timed out on send/recv operation" >&4; exit 1 ;;
  garbage-after) echo "have a nice day" >&3 ;;
  fails-after) exit 1 ;;
esac
exit 0
