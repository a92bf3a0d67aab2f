# shellcheck shell=bash disable=SC2154 # what the page sets: see slurm.sh
# Where ranks meet under Slurm: the first node's address on the chosen interface, else its name; a port of this job's
# own.

meet_on_first_node() {
  MASTER_ADDR=$(address_of_first_node "${TRAINJOB_INTERFACE:-$interface}")
  MASTER_PORT=$(port_of_this_job "$port")
  export MASTER_ADDR MASTER_PORT
}

# The job script runs on the first node of the job, and so does rank 0.
address_of_first_node() {
  local name=${SLURMD_NODENAME:-$HOSTNAME} address
  if [[ -n "$1" ]]; then
    if [[ ! "$(ip -o -4 addr show dev "$1" 2>/dev/null)" =~ \ inet\ ([0-9.]+) ]]; then
      say "node $name has no IPv4 address on network interface $1"
      return 1
    fi
    printf '%s\n' "${BASH_REMATCH[1]}"
    return 0
  fi
  read -r address _ < <(getent hosts "$name") || true
  if [[ -z "$address" ]]; then
    address_by_controller "$name"
  elif [[ "$address" == @(127.*|::1) ]]; then
    address_towards_others || printf '%s\n' "$name"
  else
    printf '%s\n' "$name"
  fi
}

# address_of_node NAME: of another node of this job.
address_of_node() {
  if [[ -n "$(getent hosts "$1")" ]]; then printf '%s\n' "$1"; else address_by_controller "$1"; fi
}

# What other nodes can't reach is not announced to them: Debian's default is that a node's own name means 127.0.1.1 on it.
# Fails for a job that has no other node, and where the way to it is not known.
address_towards_others() {
  local other shown
  other=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | sed -n 2p) || true
  if [[ -z "$other" ]]; then return 1; fi
  shown=$(getent ahostsv4 "$other" | awk '{ print $1; exit }') || true
  # 192.0.2.1 is nobody's address (RFC 5737): the way to it is the default route.
  shown=$(ip -o -4 route get "${shown:-192.0.2.1}" 2>/dev/null) || true
  [[ "$shown" =~ \ src\ ([0-9.]+) && "${BASH_REMATCH[1]}" != 127.* ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

# The controller may be restarting, so it is asked again for a minute: nothing else knows the address.
address_by_controller() {
  local tries shown
  for ((tries = 0; tries < 30; tries++)); do
    if ((tries > 0)); then sleep 2; fi
    if shown=$(scontrol show node "$1" 2>&1) && [[ "$shown" =~ NodeAddr=([^[:space:]]+) ]]; then
      printf '%s\n' "${BASH_REMATCH[1]}"
      return 0
    fi
    if ((tries == 0)); then say "the controller does not give the address of node $1 ($shown): asking again"; fi
  done
  say "the name of node $1 is not known here, and in $tries tries the controller has not given its address: $shown"
  return 1
}

# Of several runs in one job: which of them this is.
run_of_job=0

# From the job id and the run, so that no two on one node try the same, however close together they start; below the range
# from which the kernel hands out ports (32768).
port_of_this_job() {
  local wanted=$1 step
  if [[ -n "$wanted" ]]; then
    if is_taken "$wanted"; then
      say "network.port $wanted is in use on node $HOSTNAME: take it out of the cluster file and a free one is chosen"
      return 1
    fi
    printf '%s\n' "$wanted"
    return 0
  fi
  for ((step = 0; step < 100; step++)); do
    wanted=$((20000 + (SLURM_JOB_ID * 31 + run_of_job * 101 + step) % 12768))
    if ! is_taken "$wanted"; then
      printf '%s\n' "$wanted"
      return 0
    fi
  done
  say "of 100 ports from 20000 on none is free on node $HOSTNAME"
  return 1
}

is_taken() {
  { : <>"/dev/tcp/127.0.0.1/$1" || : <>"/dev/tcp/$MASTER_ADDR/$1"; } 2>/dev/null
}
