# shellcheck shell=bash disable=SC2034 # the page uses what is set here
# What poprun and mpirun need around their command line. These functions run beside names that the user has chosen, so
# everything they set begins with TRAINJOB_.

# What a rank on another host needs from the shell that starts mpirun.
TRAINJOB_ALWAYS_FORWARDED=(
  PATH LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV OPAL_PREFIX CPATH
  POPLAR_SDK_ENABLED POPLAR_ENGINE_OPTIONS POPTORCH_CACHE_DIR IPUOF_VIPU_API_TIMEOUT
  MASTER_ADDR MASTER_PORT TRAINJOB_ATTEMPT TRAINJOB_COMPILE_ONLY TRAINJOB_LIMITS
  TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_INTERFACE TRAINJOB_MAX_UPDATES
  SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CPUS_PER_TASK SLURM_JOB_ID SLURM_JOB_NODELIST SLURM_RESTART_COUNT
)

# What poprun hands to mpirun, for all hosts and for every rank.
TRAINJOB_MPI_GLOBAL='' TRAINJOB_MPI_LOCAL=''

# forward_names NAME…: collects `-x NAME` in TRAINJOB_FORWARDED, and the same at the end of the text
# TRAINJOB_MPI_LOCAL, for these names and the ones above. Values never stand on a command line, and mpirun complains
# about a name that is not set.
forward_names() {
  local TRAINJOB_NAME
  TRAINJOB_FORWARDED=()
  for TRAINJOB_NAME in "${TRAINJOB_ALWAYS_FORWARDED[@]}" "$@"; do
    if [[ -v "$TRAINJOB_NAME" && " $TRAINJOB_MPI_LOCAL " != *" -x $TRAINJOB_NAME "* ]]; then
      TRAINJOB_FORWARDED+=(-x "$TRAINJOB_NAME")
      TRAINJOB_MPI_LOCAL="${TRAINJOB_MPI_LOCAL:+$TRAINJOB_MPI_LOCAL }-x $TRAINJOB_NAME"
    fi
  done
}

# For an mpirun inside a Slurm job.
prepare_mpirun() {
  # For the srun with which some mpiruns reach the other nodes: the job was submitted without an environment.
  export SLURM_EXPORT_ENV=ALL
  # How many seconds a rank has for its checkpoint when it is told to end; mpirun's own default is one.
  export OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-5}"
}

# mpirun_on INTERFACE: the network that MPI uses between hosts.
mpirun_on() {
  export OMPI_MCA_oob_tcp_if_include="${TRAINJOB_INTERFACE:-$1}" OMPI_MCA_btl_tcp_if_include="${TRAINJOB_INTERFACE:-$1}"
}

# poprun_on INTERFACE [OPTIONS]: the same in TRAINJOB_MPI_GLOBAL, which poprun hands to mpirun with other OPTIONS.
poprun_on() {
  local TRAINJOB_NETWORK=${TRAINJOB_INTERFACE:-$1}
  TRAINJOB_MPI_GLOBAL="--mca oob_tcp_if_include $TRAINJOB_NETWORK --mca btl_tcp_if_include $TRAINJOB_NETWORK${2:+ $2}"
}

# use_cache FOLDER: where compiled executables are kept.
use_cache() {
  export POPTORCH_CACHE_DIR=$1
  mkdir -p -- "$POPTORCH_CACHE_DIR"
}

# compile_first poprun OPTION…: runs the line with no IPU attached, so that it compiles once, and then in earnest.
compile_first() {
  "$1" --offline-mode=yes "${@:2}"
  TRAINJOB_COMPILE_ONLY=''
  if [[ -n "${TRAINJOB_ATTEMPT:-}" ]]; then (cd -- "$TRAINJOB_RUN_DIR" && note_event compiled); fi
  if ((${#TRAINJOB_OWN_PARTITION[@]} > 0)); then in_own_partition "$@"; fi
  exec "$@"
}
