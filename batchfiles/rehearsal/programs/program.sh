#!/bin/bash -p
# One program under many names, first on the PATH of a rehearsed batch file. Each call is recorded, word for word, in the
# folder that TRAINJOB_SEEN names. What no laptop has is stood in for; anything else runs as it would without us.
# -p passes on the functions that a batch file exports, reads none of them, and no BASH_ENV.
name=${0##*/}
here=${0%/*}

# The name begins with the time: files of one tick of the kernel's clock have one time of change.
note() {
  at=$(date +%s%N 2>/dev/null)
  printf '%s\0' "${SLURMD_NODENAME-}" "${SLURM_STEP_ID-}" "$PWD" "$name" "$@" 2>/dev/null >"${TRAINJOB_SEEN-/nowhere}/call-${at:-0}-$$-$name"
}

# Becomes the next program of this name on PATH.
become() {
  called=$1
  shift
  rest=$PATH:
  while [ -n "$rest" ]; do
    folder=${rest%%:*}
    rest=${rest#*:}
    if [ "$folder" != "$here" ] && [ -f "$folder/$called" ] && [ -x "$folder/$called" ]; then
      exec "$folder/$called" "$@"
    fi
  done
  case $called in accelerate | deepspeed | composer | tune) stand_in "$called" "$@" ;; esac
  case " ${TRAINJOB_SEEN_MISSING-} " in *" $called "*) stand_in_for_missing "$@" ;; esac
  echo "$called: command not found" >&2
  exit 127
}

# Starts the ranks of a launcher that is not installed. Without site nothing of it is recorded: it is no part of the file.
stand_in() {
  name=stand-in
  note "$@"
  become python3 -S "$here/.launcher.py" "$@"
}

# Runs the Python of another version, or the program that a site's own wrapper would start; else does nothing.
# Nodes of the cluster's are not here: this one's address is that of any.
stand_in_for_missing() {
  case $called in
    python*) become python3 "$@" ;;
    host) echo "${1-} has address $(become hostname -i)"; exit 0 ;;
  esac
  while [ $# -gt 0 ]; do
    case ${1##*/} in
      python* | torchrun | accelerate | deepspeed | composer | tune | bash | sh | zsh) exec "$@" ;;
      apptainer | singularity | shifter) exec "$@" ;;
    esac
    shift
  done
  exit 0
}

# Runs what stands behind the options, the first of which may be a verb: `conda run -n torch python train.py`.
behind_options() {
  with_value=$1
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --) shift; break ;;
      -m | --module) if [ "$name" = uv ]; then shift; set -- python -m "$@"; break; fi; shift 2 ;;
      -*) if printf '%s\n' "$1" | grep -Eqx -e "$with_value"; then shift; fi; [ $# -gt 0 ] && shift ;;
      *) break ;;
    esac
  done
  case ${1-} in *.py) set -- python "$@" ;; esac # as uv runs it
  [ $# -gt 0 ] || exit 0
  exec "$@"
}

# Copies, and passes over what is not here: data of the cluster's. A folder is there all the same, empty, to move to.
copy() {
  (become "$name" "$@")
  code=$?
  [ $code -ne 0 ] || exit 0
  program=$name
  for last; do :; done
  for word; do
    case $word in
      /*)
        if [ ! -e "$word" ]; then
          case $program:$* in cp:-[ra]* | rsync:*) [ ! -d "$last" ] || mkdir -p "$last/${word##*/}" ;; esac
          name=copy
          note "$word"
          echo "$program: $word is not here" >&2
          exit 0
        fi
        ;;
    esac
  done
  exit $code
}

case $name in rsync | cp | tar | unzip | unsquashfs) copy "$@" ;; esac
note "$@"
# Some files replace the whole PYTHONPATH, which would blind the rehearsal.
case :${PYTHONPATH-}: in
  *:"${TRAINJOB_SEEN_PYTHONPATH-}":*) ;;
  *) PYTHONPATH=$TRAINJOB_SEEN_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH}; export PYTHONPATH ;;
esac

# A step's log in a folder of the cluster's goes where it goes by default; options behind a first value are kept.
if [ "$name" = srun ]; then
  count=$#
  is_leading=yes
  while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
      --output=*/* | --error=*/*) file=${word#*=} ;;
      -o | -e | --output | --error) file=${1-} ;;
      -*) file='' ;;
      *) file='' is_leading='' ;;
    esac
    if [ -n "$is_leading" ] && [ -n "$file" ] && [ "${file#/}" != "$file" ] && [ ! -d "${file%/*}" ]; then
      case $word in *=*) ;; *) shift; count=$((count - 1)) ;; esac
      continue
    fi
    set -- "$@" "$word"
    case $word in -o | -e | --output | --error) [ "$count" -gt 0 ] && { set -- "$@" "$1"; shift; count=$((count - 1)); } ;; esac
  done
fi

case $name in
  module | ml | spack | virtualenv | ws_find | ws_allocate | jutil) exit 0 ;;
  conda | mamba | micromamba | uv | poetry | pixi)
    [ "${1-}" = run ] || exit 0
    shift
    behind_options '-n|-p|--name|--prefix|--cwd|--with|--extra|--group|--python|--project|--directory|--package|-e|-m' "$@"
    ;;
  pip | pip3) [ "${1-}" = install ] && exit 0; become "$name" "$@" ;;
  apptainer | singularity | docker | podman)
    while [ $# -gt 0 ] && [ "$1" != exec ] && [ "$1" != run ]; do shift; done
    [ $# -gt 0 ] || exit 0
    shift
    values='-B|--bind|--env|--env-file|--pwd|--cwd|-W|--workdir|--mount|-H|--home|-o|--overlay|-S|--scratch|--network|--security|--hostname|--app|--apply-cgroups'
    case $name in docker | podman) values="$values|-[vewupmhla]|--(volume|user|gpus|device|shm-size|name|ipc|ulimit|entrypoint|memory|cpus|publish|net|label|runtime|platform)" ;; esac
    while [ $# -gt 0 ]; do
      case $1 in
        -*) if printf '%s\n' "$1" | grep -Eqx -e "$values"; then shift; fi; [ $# -gt 0 ] && shift ;;
        *) break ;;
      esac
    done
    [ $# -gt 1 ] || exit 0
    case ${1##*/} in bash | sh | python* | torchrun | accelerate) ;; *) shift ;; esac # the image, if its variable is set here
    exec "$@"
    ;;
  nsys | ncu) # stand-in GPUs have nothing to profile
    [ "$name" = ncu ] || { [ "${1-}" = profile ] || [ "${1-}" = launch ] || exit 0; shift; }
    behind_options '-[a-zA-Z]|--(output|trace|sample|capture-range|capture-range-end|delay|duration|force-overwrite|export|stats|session-new|set|section|target-processes|kernel-name|launch-count|launch-skip|cpuctxsw|cuda-memory-usage|cudabacktrace|python-sampling|env-var|kill|wait|nvtx-capture|gpu-metrics-device)' "$@"
    ;;
  hostname) # -I leaves out loopback, which is all that a node has here
    case ${1-} in -I | --all-ip-addresses) become hostname -i ;; esac
    become hostname "$@"
    ;;
  shifter) behind_options '--image|-i|--module|-m|--volume|-V|--workdir|-w|--env|-e|--env-file' "$@" ;;
  python* )
    case "${1-} ${2-} ${3-}" in "-m pip install" | "-m venv "*) exit 0 ;; esac
    case " $* " in
      *" -m accelerate.commands.launch "*)
        (unset TRAINJOB_SEEN; become "$name" -c 'import accelerate' 2>/dev/null) || {
          while [ "$1" != accelerate.commands.launch ]; do shift; done
          shift
          stand_in accelerate launch "$@"
        }
        ;;
    esac
    become "$name" "$@"
    ;;
  *) become "$name" "$@" ;;
esac
