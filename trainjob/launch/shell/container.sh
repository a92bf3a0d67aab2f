# shellcheck shell=bash disable=SC2034 # the page uses what is set here
# One container for each rank on this machine. The launcher outside starts them and says where ranks meet; the one
# inside starts the rank. Everything set here begins with TRAINJOB_, because it stands beside names of the user's.

# What a rank is handed by the launcher outside.
TRAINJOB_ALWAYS_HANDED_IN=(
  RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
  TRAINJOB_RUN_DIR TRAINJOB_ATTEMPT TRAINJOB_TOKEN TRAINJOB_COMPILE_ONLY
  OMP_NUM_THREADS OMP_WAIT_POLICY GOMP_SPINCOUNT KMP_BLOCKTIME GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME
  TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_MAX_UPDATES
)

# find_engine NAME: before the job sets a PATH of its own, which is meant for inside.
find_engine() {
  TRAINJOB_ENGINE=$(command -v "$1") || TRAINJOB_ENGINE=$1
  TRAINJOB_HOST_PYTHON=$(command -v python3) || TRAINJOB_HOST_PYTHON=python3
}

# contain_ranks NAME…: collects in TRAINJOB_CONTAINED the options of `docker run` or `podman run`. The variables NAME…
# are handed in, by name: no value stands on a command line.
contain_ranks() {
  local TRAINJOB_NAME
  TRAINJOB_CONTAINED=(
    --rm --interactive --pull never --log-driver none --label "$TRAINJOB_LABEL=$TRAINJOB_RUN_DIR"
    --network host --ipc host --security-opt label=disable
    --volume "$TRAINJOB_RUN_DIR:$TRAINJOB_RUN_DIR" --workdir "$TRAINJOB_RUN_DIR/code"
  )
  # An engine would make a folder that is missing, as root.
  if [[ -d "${TRAINJOB_DATA_DIR:-}" ]]; then
    TRAINJOB_CONTAINED+=(--volume "$TRAINJOB_DATA_DIR:$TRAINJOB_DATA_DIR:ro")
  fi
  be_the_user
  for TRAINJOB_NAME in "${TRAINJOB_ALWAYS_HANDED_IN[@]}" "$@"; do TRAINJOB_CONTAINED+=(--env "$TRAINJOB_NAME"); done
}

# Files that ranks write belong to the user.
be_the_user() {
  local TRAINJOB_GROUP
  if [[ "${TRAINJOB_ENGINE##*/}" == podman ]]; then
    # For root there is no other namespace, and the image's own user would see none of its files.
    if (($(id -u) != 0)); then TRAINJOB_CONTAINED+=(--userns keep-id); else TRAINJOB_CONTAINED+=(--user 0:0); fi
  elif [[ "$("$TRAINJOB_ENGINE" info --format '{{.SecurityOptions}}')" == *rootless* ]]; then
    # A rootless engine's root is the user.
    TRAINJOB_CONTAINED+=(--user 0:0)
  else
    TRAINJOB_CONTAINED+=(--user "$(id -u):$(id -g)")
    for TRAINJOB_GROUP in $(id -G); do TRAINJOB_CONTAINED+=(--group-add "$TRAINJOB_GROUP"); done
  fi
}
