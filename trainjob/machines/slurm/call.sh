# call.sh SECONDS PROGRAM WORDS...: runs WORDS, one of Slurm's commands, for at most SECONDS (empty: for as long as it takes), so
# that one that hangs ends on that machine, too. Exits with 127 if PROGRAM is not there, and with 124 or 137 after SECONDS.
# shellcheck shell=sh
# A shell without a login may lack the site's PATH.
if ! command -v "$2" >/dev/null 2>&1; then
  # shellcheck disable=SC1091 # the site's own file
  . /etc/profile >/dev/null 2>&1
  command -v "$2" >/dev/null 2>&1 || exit 127
fi
# Nor does it have what the site sets for logins alone.
if [ -z "${SLURM_CONF-}${SLURM_CONF_SERVER-}" ] && grep -qs SLURM_CONF /etc/profile /etc/profile.d/*.sh; then
  # shellcheck disable=SC1091 # the site's own file
  for pair in $(. /etc/profile >/dev/null 2>&1; env | grep '^SLURM_CONF'); do export "${pair?}"; done
fi
# SBATCH_ variables would override the directives of the job script, SQUEUE_ and SCANCEL_ ones what is asked for. What a
# job has told this shell (SLURM_RESTART_COUNT, SLURM_ARRAY_TASK_ID) a new job would take for its own.
# The shell lists them itself, which starts no program: `export NAME='value'`. A name within a value that is unset for nothing,
# or twice, does no harm.
set -f
for word in $(export -p); do
  case $word in
    SLURM_CONF=* | SLURM_CONF_SERVER=* | SLURM_JWT=* | SLURM_CLUSTERS=*) ;;
    SBATCH_*=* | SQUEUE_*=* | SCANCEL_*=* | SACCT_*=* | SINFO_*=* | SCONTROL_*=* | SLURM_*=*)
      name=${word%%=*}
      case $name in *[!A-Za-z0-9_]*) ;; *) unset "$name" ;; esac
      ;;
  esac
done
set +f
seconds=$1
shift 2
if [ -n "$seconds" ] && command -v timeout >/dev/null; then set -- timeout -k 1 "$seconds" "$@"; fi
exec "$@"
