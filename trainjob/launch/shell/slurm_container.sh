# shellcheck shell=bash disable=SC2034,SC2154 # the page uses what is set here, and sets what is used: see slurm.sh
# What ranks run inside of under Slurm: the words between srun and the interpreter. All of them are empty where a
# rehearsal runs without a container. Everything set here begins with TRAINJOB_, because it stands beside names of the
# user's.

# A container sees nothing of the environment but these and the job's own: what a host has loaded is for the host.
TRAINJOB_ALWAYS_HANDED_IN=(
  MASTER_ADDR MASTER_PORT TRAINJOB_ATTEMPT TRAINJOB_DATA_DIR TRAINJOB_DEVICE TRAINJOB_INTERFACE TRAINJOB_MAX_UPDATES
  TRAINJOB_RUN_DIR TRAINJOB_SHARE TRAINJOB_TOKEN
  SLURM_LOCALID SLURM_NTASKS SLURM_PROCID SLURM_STEP_TASKS_PER_NODE
  SLURMD_NODENAME SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CPUS_PER_TASK SLURM_JOB_ID SLURM_JOB_NODELIST
  SLURM_NODEID SLURM_RESTART_COUNT SLURM_STEP_GPUS
)
TRAINJOB_CONTAINED=() TRAINJOB_SRUN_OPTIONS=() TRAINJOB_OPTIONS=()
TRAINJOB_HANDED_IN=() TRAINJOB_MOUNTS=() TRAINJOB_TARGETS=()

# hand_in NAME…: names of variables, never their values.
hand_in() { TRAINJOB_HANDED_IN=("${TRAINJOB_ALWAYS_HANDED_IN[@]}" "$@"); }

# mount_folders FOLDER…: beside the run directory and the data; at the same path, or FOLDER:/PATH. One that is missing on
# this node is left out.
mount_folders() {
  local TRAINJOB_FOLDER
  mount_at "$TRAINJOB_SUBMITTED_IN" "$TRAINJOB_SUBMITTED_IN"
  mount_at "${TRAINJOB_DATA_DIR:-}" "${TRAINJOB_DATA_DIR:-}"
  for TRAINJOB_FOLDER in "$@"; do
    if [[ "$TRAINJOB_FOLDER" == *:/* ]]; then
      mount_at "${TRAINJOB_FOLDER%%:/*}" "/${TRAINJOB_FOLDER#*:/}"
    else
      mount_at "$TRAINJOB_FOLDER" "$TRAINJOB_FOLDER"
    fi
  done
}

mount_at() { if [[ -e "$1" ]]; then TRAINJOB_MOUNTS+=("$1") TRAINJOB_TARGETS+=("$2"); fi; }

# contain_ranks RUNTIME IMAGE cpu|gpu [OPTION…]: after hand_in and mount_folders. The options are the user's own.
contain_ranks() {
  if [[ "${TRAINJOB_CONTAINER:-}" == none ]]; then return 0; fi
  refuse_unmountable "$1"
  TRAINJOB_OPTIONS=("${@:4}")
  case $1 in
    apptainer) contain_in_apptainer "$2" "$3" ;;
    pyxis) contain_in_pyxis "$2" ;;
    shifter) contain_in_shifter "$2" ;;
    # It passes the environment on, and its file says what is mounted.
    ce) TRAINJOB_SRUN_OPTIONS=(--environment="$2" ${TRAINJOB_OPTIONS[@]+"${TRAINJOB_OPTIONS[@]}"}) ;;
    *) contain_in_engine "$@" ;;
  esac
}

refuse_unmountable() {
  local TRAINJOB_FOLDER TRAINJOB_SIGNS='[,"]'
  if [[ "$1" == pyxis ]]; then TRAINJOB_SIGNS='[,":]'; fi
  if [[ "$1" == shifter ]]; then TRAINJOB_SIGNS='[;":]'; fi
  for TRAINJOB_FOLDER in "${TRAINJOB_MOUNTS[@]}" "${TRAINJOB_TARGETS[@]}"; do
    # shellcheck disable=SC2053 # the signs are a pattern
    if [[ "$TRAINJOB_FOLDER" == *$TRAINJOB_SIGNS* ]]; then
      say "$TRAINJOB_FOLDER contains a character at which $1 splits its mounts: give it another name"
      exit 1
    fi
  done
}

bind_mounts() {
  local TRAINJOB_NUMBER
  for TRAINJOB_NUMBER in "${!TRAINJOB_MOUNTS[@]}"; do
    TRAINJOB_CONTAINED+=(
      --mount "type=bind,source=${TRAINJOB_MOUNTS[TRAINJOB_NUMBER]},destination=${TRAINJOB_TARGETS[TRAINJOB_NUMBER]}"
    )
  done
}

# A clean environment, and no value evaluated by the image's shell. The home is there, the packages in it are not.
# Singularity, which some sites have instead, takes the same words.
contain_in_apptainer() {
  TRAINJOB_CONTAINED=(apptainer)
  if ! command -v apptainer >/dev/null && command -v singularity >/dev/null; then TRAINJOB_CONTAINED=(singularity); fi
  TRAINJOB_CONTAINED+=(exec --cleanenv --no-eval)
  if [[ "$2" == gpu ]]; then TRAINJOB_CONTAINED+=("$(option_for_gpus)"); fi
  TRAINJOB_CONTAINED+=(--pwd "$TRAINJOB_RUN_DIR/code")
  bind_mounts
  TRAINJOB_CONTAINED+=(${TRAINJOB_OPTIONS[@]+"${TRAINJOB_OPTIONS[@]}"} "$1")
  # on_each_node.sh gives apptainer the values.
  export TRAINJOB_FOR_APPTAINER="${TRAINJOB_HANDED_IN[*]}"
}

# AMD's kernel driver has one device for all its GPUs. This is the first node of the job, and all are alike.
option_for_gpus() {
  if [[ -e "${TRAINJOB_DEVICES:-/dev}/kfd" && ! -e "${TRAINJOB_DEVICES:-/dev}/nvidiactl" ]]; then
    printf '%s\n' --rocm
  else
    printf '%s\n' --nv
  fi
}

contain_in_pyxis() {
  local IFS=, TRAINJOB_NUMBER TRAINJOB_PAIRS=()
  for TRAINJOB_NUMBER in "${!TRAINJOB_MOUNTS[@]}"; do
    TRAINJOB_PAIRS+=("${TRAINJOB_MOUNTS[TRAINJOB_NUMBER]}:${TRAINJOB_TARGETS[TRAINJOB_NUMBER]}")
  done
  TRAINJOB_SRUN_OPTIONS=(
    --container-image="$1" --container-workdir="$TRAINJOB_RUN_DIR/code" --no-container-entrypoint
    --container-env="${TRAINJOB_HANDED_IN[*]}" --container-mounts="${TRAINJOB_PAIRS[*]}"
    ${TRAINJOB_OPTIONS[@]+"${TRAINJOB_OPTIONS[@]}"}
  )
}

# Shifter passes the environment on, and shows the file systems of its site: mounts are for the others.
contain_in_shifter() {
  local TRAINJOB_FOLDER TRAINJOB_NUMBER
  TRAINJOB_CONTAINED=(shifter --image="$1" ${TRAINJOB_OPTIONS[@]+"${TRAINJOB_OPTIONS[@]}"})
  for TRAINJOB_NUMBER in "${!TRAINJOB_MOUNTS[@]}"; do
    TRAINJOB_FOLDER=${TRAINJOB_MOUNTS[TRAINJOB_NUMBER]}
    if [[ "$TRAINJOB_FOLDER" != "$TRAINJOB_SUBMITTED_IN" && "$TRAINJOB_FOLDER" != "${TRAINJOB_DATA_DIR:-}" ]]; then
      TRAINJOB_CONTAINED+=(--volume="$TRAINJOB_FOLDER:${TRAINJOB_TARGETS[TRAINJOB_NUMBER]}")
    fi
  done
}

# Docker and podman.
contain_in_engine() {
  local TRAINJOB_NAME
  TRAINJOB_CONTAINED=(
    "$1" run --rm --network host --ipc host --user "$(id -u):$(id -g)" --entrypoint ''
    --label "$TRAINJOB_LABEL=$TRAINJOB_RUN_DIR" --workdir "$TRAINJOB_RUN_DIR/code"
  )
  if [[ "$1" == podman ]] && ((EUID != 0)); then TRAINJOB_CONTAINED+=(--userns keep-id); fi
  if [[ "$3" == gpu && "$1" == docker ]]; then
    TRAINJOB_CONTAINED+=(--gpus "${CUDA_VISIBLE_DEVICES:+\"device=}${CUDA_VISIBLE_DEVICES:-all}${CUDA_VISIBLE_DEVICES:+\"}")
  elif [[ "$3" == gpu ]]; then
    TRAINJOB_CONTAINED+=(--device nvidia.com/gpu=all)
  fi
  bind_mounts
  for TRAINJOB_NAME in "${TRAINJOB_HANDED_IN[@]}"; do TRAINJOB_CONTAINED+=(--env "$TRAINJOB_NAME"); done
  TRAINJOB_CONTAINED+=(${TRAINJOB_OPTIONS[@]+"${TRAINJOB_OPTIONS[@]}"} "$2")
}

# How long an engine is left alone before it is asked again for an image that it does not have yet.
image_look_s=5

has_engine() { [[ "$container" == docker || "$container" == podman ]]; }

# A name can mean another image tomorrow. The digest is found beside the ranks, because a large file takes minutes to read.
note_image() {
  local digest
  trap - EXIT TERM INT HUP USR1
  # What reads the image is no process of the run's.
  export -n TRAINJOB_RUN_DIR
  if digest=$(digest_of_image); then note_event image "$digest"; fi
}

# A folder has no digest, and neither has a registry's tag before it is downloaded.
digest_of_image() {
  local shown tries
  if [[ "$image" == *@sha256:* ]]; then
    printf '%s\n' "$image"
  elif has_engine; then
    # An image that this node does not have is downloaded when the ranks start.
    for ((tries = 1; tries <= 120; tries++)); do
      if shown=$("$container" image inspect --format '{{range .RepoDigests}}{{.}} {{end}}{{.Id}}' "$image"); then break; fi
      sleep "$image_look_s"
    done
    shown=${shown%% *}
    if [[ "$shown" != *@* ]]; then shown=sha256:${shown#sha256:}; fi
    [[ "$shown" != sha256: ]] && printf '%s\n' "$shown"
  else
    [[ -f "$image" ]] && shown=$(sha256sum <"$image") && printf 'sha256:%s\n' "${shown%% *}"
  fi
}

# end_noting CODE: a job that was short waits for the digest for up to a minute, and no cancelled or failed one does.
end_noting() {
  local tries
  for ((tries = 0; tries < 300 && $1 == 0; tries++)); do
    if [[ -n "$cancelled" ]] || ! kill -0 "$noting" 2>/dev/null; then break; fi
    sleep 0.2
  done
  kill -KILL "$noting" 2>/dev/null || true
}

# end_containers ENGINE: a container outlives the command that has started it, where that is killed.
end_containers() {
  local left
  left=$("$1" ps --quiet --filter "label=$TRAINJOB_LABEL=$TRAINJOB_RUN_DIR" 2>/dev/null) || return 0
  if [[ -n "$left" ]]; then xargs "$1" rm --force <<<"$left" >/dev/null 2>&1 || true; fi
}
