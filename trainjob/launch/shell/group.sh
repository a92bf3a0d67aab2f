# shellcheck shell=bash
# poprun and mpirun start processes that outlive them when they are killed. All of them on this host are one process
# group, `launcher`: the page starts it under `set -m`.

kill_group() { kill -"$1" -- "-$launcher" 2>/dev/null || true; }

# Ten seconds between TERM and KILL.
end_group() {
  local step
  for ((step = 0; step < 100; step++)); do
    if [[ -z "$launcher" ]] || ! kill -TERM -- "-$launcher" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  kill_group KILL
}
