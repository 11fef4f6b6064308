#!/bin/sh
# usage: compare.sh COMPARE.PY --program=NAME=PATH... ARGUMENT...
set -eu
exec python3 "$@"
