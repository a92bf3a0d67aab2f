# shellcheck shell=bash
# Read by every bash of a rehearsed batch file before its script (BASH_ENV). Folders and files that are not here are
# recorded and passed over; those that are here are read as without us.

trainjob_seen_paths() {
  # A login shell, an activated virtualenv and many files put others in front, or set the whole anew.
  case :$PATH: in
    "$TRAINJOB_SEEN_PROGRAMS":*) ;;
    *) PATH=$TRAINJOB_SEEN_PROGRAMS:$PATH ;;
  esac
  case :${PYTHONPATH-}: in
    *:"$TRAINJOB_SEEN_PYTHONPATH":*) ;;
    *) export PYTHONPATH=$TRAINJOB_SEEN_PYTHONPATH${PYTHONPATH:+:$PYTHONPATH} ;;
  esac
  unset -f module ml conda mamba micromamba spack
}

trainjob_seen_note() {
  local at=${EPOCHREALTIME-0}
  printf '%s\0' "${SLURMD_NODENAME-}" "${SLURM_STEP_ID-}" "$PWD" "$@" >"$TRAINJOB_SEEN/call-${at/[.,]/}000-$BASHPID-$1-$RANDOM" 2>/dev/null
}

source() {
  case ${1-} in
    /* | */activate | activate)
      if [[ ! -e $1 ]]; then
        trainjob_seen_note source "$@"
        # shellcheck disable=SC2329 # the user's own file calls it
        case $1 in *activate) deactivate() { unset -f deactivate; } ;; esac
        return 0
      fi
      ;;
  esac
  # shellcheck disable=SC1090 # the user's own file
  builtin source "$@"
  local code=$?
  # What a login reads sets PATH anew, or puts other Pythons in front.
  case ${1-} in
    /etc/* | *bashrc | *profile) PATH=$TRAINJOB_SEEN_PATH:$PATH ;;
  esac
  trainjob_seen_paths
  return "$code"
}

# shellcheck disable=SC1090 # the function above
.() { source "$@"; }

# There is no network here.
git() {
  case ${1-} in
    pull | fetch | push | clone | submodule | lfs)
      trainjob_seen_note git "$@"
      return 0
      ;;
  esac
  command git "$@"
}

cd() {
  if [[ ${1-} == /* && ! -e $1 ]]; then
    trainjob_seen_note cd "$@"
    return 0
  fi
  builtin cd "$@" || return
}

# In a proof, functions and programs of the cluster's do nothing. An option that begins a line is no program anywhere,
# and the file's own functions (TRAINJOB_SEEN_DEFINED) have to be in its job.
if [[ -n ${TRAINJOB_SEEN_DEFINED-} ]]; then
  command_not_found_handle() {
    echo "$1: command not found" >&2
    case $1 in -*) return 127 ;; esac
    case " $TRAINJOB_SEEN_DEFINED " in *" $1 "*) return 127 ;; esac
  }
fi

if [[ -n ${TRAINJOB_SEEN-} ]]; then
  # A login shell begins with the PATH of /etc/profile, which has none of the user's programs.
  if shopt -q login_shell; then PATH=$TRAINJOB_SEEN_PATH:$PATH; fi
  trainjob_seen_paths
fi
