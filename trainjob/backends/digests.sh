# digests.sh FOLDER: prints the SHA-256 and the name of every file below FOLDER, without the lock of a command.
# shellcheck shell=sh
set -eu
cd -- "$1"
sum=sha256sum
command -v sha256sum >/dev/null || sum='shasum -a 256' # macOS
# shellcheck disable=SC2086
find . -type f ! -path './.lock*' -exec $sum {} + | LC_ALL=C sort
