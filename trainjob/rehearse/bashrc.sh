# shellcheck shell=bash
# What `trainjob rehearse --shell` has bash read. The user's own file may prepend to PATH; the stand-ins have to come first.
# shellcheck source=/dev/null
if [[ -r ~/.bashrc ]]; then . ~/.bashrc; fi
export PATH=$TRAINJOB_REHEARSED_PATH
export PYTHONPATH=$TRAINJOB_REHEARSED_PYTHONPATH
PS1="($TRAINJOB_REHEARSED_CLUSTER, rehearsed) $PS1"
unset TRAINJOB_REHEARSED_PATH TRAINJOB_REHEARSED_PYTHONPATH TRAINJOB_REHEARSED_CLUSTER
