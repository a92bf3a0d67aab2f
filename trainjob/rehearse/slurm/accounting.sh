#!/bin/sh
# The accounting of a private Slurm: a database in memory, slurmdbd, and an account and a QOS for the user.
# Usage: accounting.sh FOLDER, with accounting.conf and associations in FOLDER
set -eu
folder=$1
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
private=$folder/private
data=$private/database

# Waits until a command succeeds, for half a minute at most.
within_half_a_minute() {
  tries=0
  until "$@" >"$private/accounting.log" 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 150 ]; then
      cat "$private/accounting.log" >&2
      if [ -e "$private/slurmdbd.log" ]; then tail -n 3 "$private/slurmdbd.log" >&2; fi
      return 1
    fi
    sleep 0.2
  done
}

# Where slurmdbd looks for it; a database of the host's own has its socket there, too.
mkdir -p /run/mysqld
mount -t tmpfs trainjob /run/mysqld
install -d -o mysql -g mysql "$data" /run/mysqld
# Where newer clients, as of Slurm 26.05 in Debian, look for it.
if mkdir -p /run/mariadbd 2>/dev/null; then mount --bind /run/mysqld /run/mariadbd; fi
mariadb-install-db --no-defaults --user=mysql --datadir="$data" --auth-root-authentication-method=socket \
  --skip-test-db >"$private/database.log"
mariadbd --no-defaults --user=mysql --datadir="$data" --skip-networking --socket=/run/mysqld/mysqld.sock \
  --pid-file=/run/mysqld/pid >>"$private/database.log" 2>&1 &
within_half_a_minute mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping
# slurmdbd takes it from nobody but the user that it runs as.
install -m 600 "$folder/accounting.conf" "$folder/slurmdbd.conf"
slurmdbd
within_half_a_minute sacctmgr --immediate add cluster trainjob
while read -r line; do
  # shellcheck disable=SC2086 # words of sacctmgr
  sacctmgr --immediate $line >"$private/accounting.log" || { cat "$private/accounting.log" >&2; exit 1; }
done <"$folder/associations"
