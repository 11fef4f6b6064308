#!/bin/sh
# usage: compare.sh COMPARE.PY OURS PYTHON GLOO.PY MPI.C ARGUMENT...
set -eu
exec python3 "$@"
