#!/bin/sh
# usage: run_peer.sh PYTHON SCRIPT ARGUMENT...
# Fails before SCRIPT where PYTHON has no torch, so that a peer that cannot be had is never a peer that agrees. SCRIPT runs in the
# same process, as `PYTHON SCRIPT ARGUMENT...` would run it: importing torch takes 3 s. SCRIPT may import modules of this folder.
set -eu
python=$1
shift
PEER_MODULES=$(dirname "$0")
export PEER_MODULES
exec "$python" -c '
import os
import runpy
import sys

import torch

print("peer: PyTorch", torch.__version__, flush=True)
del sys.argv[0]
sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
sys.path.insert(1, os.path.realpath(os.environ["PEER_MODULES"]))
runpy.run_path(sys.argv[0], run_name="__main__")
' "$@"
