# shellcheck shell=bash disable=SC2154 # what the page and requeue.sh set
# Nodes that the next attempt of a run avoids: those that failed, lost a device or did not pass the node check. The list
# `excluded_nodes` has a line for each: node, attempt, why, separated by tabs.

# exclude_node NODE WHY
exclude_node() {
  set -- "$1" "${2#"node $1 "}"
  if grep -qs "^$1	" excluded_nodes; then return 0; fi
  write_word excluded_nodes "$(cat excluded_nodes 2>/dev/null; printf '%s\t%s\t%s' "$1" "$TRAINJOB_ATTEMPT" "$2")"
  say "node $1 $2: the next attempt avoids it"
}

# What this attempt has learned: the launcher names a node in .bad_node, and Slurm says which nodes have failed.
note_bad_nodes() {
  local node why
  if [[ -s .bad_node ]]; then
    read -r node why <.bad_node || true
    if is_node_name "$node"; then exclude_node "$node" "$why"; fi
  fi
  note_failed_nodes "${SLURM_JOB_NODELIST:-}"
}

# Prints the nodes of an attempt that may not have noted them all. When its first node failed, Slurm started the job again
# without a word of the script; and a script that outlives its node may still be at work on its record.
nodes_of_last_attempt() {
  local word
  read_word state
  if [[ "$word" == @(RUNNING|REQUEUED) ]]; then
    read_word .nodes
    printf '%s\n' "$word"
  fi
}

# note_failed_nodes NODES: those of them that Slurm has given up.
note_failed_nodes() {
  local node
  for node in $(failed_nodes "$1"); do exclude_node "$node" "failed"; done
}

# failed_nodes NODES: prints those of them that Slurm has given up.
failed_nodes() {
  local node state
  if [[ -z "$1" ]]; then return 0; fi
  while read -r node state _; do
    case $state in
      down* | fail* | unknown* | *\*) if is_node_name "$node"; then printf '%s\n' "$node"; fi ;;
    esac
  done < <(sinfo --noheader --Node --nodes="$1" --format='%N %T' 2>/dev/null)
}

is_node_name() { [[ "$1" =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]]; }

# Whether the node that the launcher blames shows what two other nodes have shown: then no node is to blame, and a job that
# avoids one after the other would wait for ever. A data folder that is missing everywhere is such a fault.
every_node_is_to_blame() {
  local node why others
  if [[ ! -s .bad_node || ! -s excluded_nodes ]]; then return 1; fi
  read -r node why <.bad_node || true
  why=${why#"node $node "}
  others=$(awk -F '\t' -v node="$node" -v why="$why" '$1 != node && $3 == why { n++ } END { print n + 0 }' excluded_nodes)
  if ((others < 2)); then return 1; fi
  say "node $node $why, as $others other nodes did before: the job is not started again. Mend this, then: trainjob resume"
}

# Prints the nodes to exclude, with commas: the newest of the list, as long as enough are left for the job.
nodes_to_exclude() {
  local usable left node shown='' required='' features='' excluded=() nodes=()
  # Which of the nodes that are left would suit a group, only Slurm knows.
  if [[ ! -s excluded_nodes || -n "${node_groups:-}" ]]; then return 0; fi
  shown=$(show_job)
  if [[ "$shown" =~ \ ReqNodeList=([^[:space:]]+) ]]; then required=${BASH_REMATCH[1]/#(null)/}; fi
  if [[ "$shown" =~ \ Features=([^[:space:]]+) ]]; then features=${BASH_REMATCH[1]/#(null)/}; fi
  if [[ -n "$required" || "$features" == *[!A-Za-z0-9_.\&-]* ]]; then
    say "the job asks for certain nodes (${required:-$features}), so none of them is excluded"
    return 0
  fi
  mapfile -t excluded < <(awk -F '\t' '$1 ~ /^[A-Za-z0-9][A-Za-z0-9._-]*$/ { print $1 }' excluded_nodes)
  usable=$(usable_nodes "$features") || usable=''
  if [[ -z "$usable" ]]; then return 0; fi
  read -ra nodes <<<"$usable"
  left=${#nodes[@]}
  for node in "${excluded[@]}"; do
    if [[ "$usable" == *" $node "* ]]; then left=$((left - 1)); fi
  done
  while ((${#excluded[@]} > 0 && left < SLURM_JOB_NUM_NODES)); do
    say "too few nodes would be left without ${excluded[0]}: it is used again"
    if [[ "$usable" == *" ${excluded[0]} "* ]]; then left=$((left + 1)); fi
    excluded=("${excluded[@]:1}")
  done
  local IFS=,
  printf '%s\n' "${excluded[*]}"
}

# usable_nodes A&B: prints " NODE NODE ", the nodes of the partition that work, and have all of these features.
usable_nodes() {
  sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --format='%N %T %f' 2>/dev/null | awk -v wanted="$1" '
    BEGIN { count = split(wanted, names, "&") }
    {
      fits = $2 !~ /^(down|drain|fail|maint|unk|inval)|\*$/ && !seen[$1]++
      for (i = 1; i <= count; i++) if (index("," $3 ",", "," names[i] ",") == 0) fits = 0
      if (fits) printf "%s%s ", (some++ ? "" : " "), $1
    }'
}

# The job waits now, after a requeue. What its owner excludes stays excluded, and what the run no longer avoids does not.
# Its start can't be brought forward from here: Slurm sets the two minutes that it waits when the last of this script is
# gone.
start_elsewhere() {
  local ours theirs='' shown
  if [[ ! -s excluded_nodes ]]; then return 0; fi
  ours=$(nodes_to_exclude)
  if shown=$(scontrol show job -o "$job" 2>/dev/null) && [[ "$shown" =~ \ ExcNodeList=([^[:space:]]+) ]]; then
    theirs=${BASH_REMATCH[1]/#(null)/}
  fi
  if [[ -n "$theirs" ]]; then
    theirs=$(scontrol show hostnames "$theirs" 2>/dev/null | grep -vxF "$(cut -f 1 excluded_nodes)" | paste -sd ,) || theirs=''
  fi
  ours="${theirs:+$theirs${ours:+,}}$ours"
  # Slurm 22.05 adds to the list that there is.
  scontrol update JobId="$job" ExcNodeList= >/dev/null 2>&1 || true
  if [[ -n "$ours" ]]; then scontrol update JobId="$job" ExcNodeList="$ours" >/dev/null 2>&1 || true; fi
}
