# shellcheck shell=bash disable=SC2154 # what the page sets
# A job on hosts without a scheduler. This script runs on one of them, or beside them; its mpirun starts the ranks on all
# of them over ssh. The page sets `first_host`, where rank 0 runs, unless it is the only host; and `interface` and `port`
# where the site has chosen them.

# shellcheck source=local.sh
. "${BASH_SOURCE[0]%/*}/local.sh"
first_host='' interface='' port=''

# What every host must be able to read in the run directory before it starts a rank, and where ranks meet.
begin_run_on_hosts() {
  begin_run
  export TRAINJOB_TOKEN="$TRAINJOB_ATTEMPT.$RANDOM$RANDOM"
  write_word .token "$TRAINJOB_TOKEN"
  MASTER_ADDR=$(address_of_first_host "${TRAINJOB_INTERFACE:-$interface}")
  # The same on every host, and another one for every run and attempt.
  MASTER_PORT=${port:-$((20000 + $(cksum <<<"$TRAINJOB_RUN_DIR $TRAINJOB_ATTEMPT" | cut -d ' ' -f 1) % 12768))}
  export MASTER_ADDR MASTER_PORT
}

# address_of_first_host [INTERFACE]: its address there, else the name or address that ssh has for it. What the cluster
# file calls it may be known to ssh alone.
address_of_first_host() {
  local shown
  if [[ -z "$first_host" ]]; then
    printf '127.0.0.1\n'
  elif [[ -z "$1" ]]; then
    address_of_host "$first_host"
  else
    shown=$(on_first_host ip -o -4 addr show dev "$1" 2>&1) || true
    if [[ ! "$shown" =~ inet\ ([0-9.]+) ]]; then
      say "host $first_host has no IPv4 address on network interface $1, or can't be asked: $shown"
      return 1
    fi
    printf '%s\n' "${BASH_REMATCH[1]}"
  fi
}

address_of_host() { ssh -G -- "$1" | sed -n 's/^hostname //p'; }

# The words need no quoting. A host may not let its users log in to itself.
on_first_host() {
  if [[ "$first_host" == "$HOSTNAME" ]]; then "$@"; else ssh -T -o BatchMode=yes -o ConnectTimeout=15 -- "$first_host" "$*"; fi
}

# Before mpirun: it asks nothing when it logs in to the hosts.
use_ssh() {
  export OMPI_MCA_plm_rsh_agent="${OMPI_MCA_plm_rsh_agent:-ssh -T -o BatchMode=yes -o ConnectTimeout=15}"
}
