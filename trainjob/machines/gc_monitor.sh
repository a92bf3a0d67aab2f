#!/bin/bash
# Asks gc-monitor, which comes with the SDK: SDK-FOLDER V-IPU-SERVER PARTITION, each of which may be empty. The SDK is
# enabled by launch/shell/sdk.sh, which stands before this file.
if [ -n "$1" ]; then enable_sdk "$1" >/dev/null 2>&1; fi
# For gc-monitor alone: poptorch programs are disturbed by these.
if [ -n "$2" ]; then export IPUOF_VIPU_API_HOST=$2; fi
if [ -n "$3" ]; then export IPUOF_VIPU_API_PARTITION_ID=$3; fi
command -v gc-monitor >/dev/null 2>&1 || exit 127
exec gc-monitor
