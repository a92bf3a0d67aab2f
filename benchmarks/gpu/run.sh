#!/usr/bin/env bash
# The prepared run for a machine with a GPU: at most eight minutes, no network, no installation.
#
#   benchmarks/gpu/run.sh                    # prints one table for docs/results.md, and writes gpu-run/ (--output FOLDER)
#   benchmarks/gpu/run.sh --on-stand-ins     # rehearses it on a machine without one
#   benchmarks/gpu/run.sh pack               # where there is a network: fetches what the other machine's Python may lack
#
# PYTHON is the machine's own, with torch (default: python3). Its packages come first; what it lacks is taken from wheels/.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
packages=(typer jinja2 yaml rich platformdirs tree_sitter tree_sitter_bash pytest pytest_timeout numpy tqdm)

if [[ "${1:-}" == pack ]]; then
  # tqdm is small, and numpy comes with torch.
  exec "$python" -m pip download --dest "$here/wheels" --only-binary :all: \
    'typer>=0.27,<0.29' 'Jinja2>=3.1' 'PyYAML>=6.0' 'rich>=13' 'platformdirs>=4' 'tree-sitter>=0.25' 'tree-sitter-bash>=0.25' \
    'pytest>=8' 'pytest-timeout>=2.3' tqdm
fi

lacks() { ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1"; }

if lacks torch; then
  echo "run.sh: $python has no torch: name one that has in PYTHON" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
missing=()
for package in "${packages[@]}"; do
  if lacks "$package"; then missing+=("$package"); fi
done
if ((${#missing[@]})); then
  if ! compgen -G "$here/wheels/*.whl" >/dev/null; then
    echo "run.sh: $python lacks ${missing[*]}, and $here/wheels is empty: where there is a network, run.sh pack fills it" >&2
    exit 1
  fi
  # A wheel is an archive of what it installs. After the machine's own packages, which are left as they are.
  "$python" - "$scratch/packages" "$here"/wheels/*.whl <<'PY'
import sys, zipfile
for wheel in sys.argv[2:]:
    zipfile.ZipFile(wheel).extractall(sys.argv[1])
PY
fi
own=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PYTHONPATH="$here/../..:$own:$scratch/packages"
exec 3>&1
"$python" "$here/measure.py" "$@" >&3
