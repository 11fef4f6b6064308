#!/bin/sh
# usage: run_peer.sh PYTHON SCRIPT ARGUMENT...
# Fails before SCRIPT where PYTHON has no torch, so that a peer that cannot be had is never a peer that agrees.
set -eu
python=$1
shift
"$python" -c 'import torch; print("peer: PyTorch", torch.__version__)'
exec "$python" "$@"
