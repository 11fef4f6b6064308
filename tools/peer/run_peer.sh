#!/bin/sh
# usage: run_peer.sh PYTHON SCRIPT ARGUMENT...
# Fails before SCRIPT where PYTHON has no torch, so that a peer that cannot be had is never a peer that agrees. SCRIPT runs in the
# same process, as `PYTHON SCRIPT ARGUMENT...` would run it: importing torch takes 3 s. SCRIPT may import modules of this folder,
# which is below the working folder of a test.
set -eu
python=$1
shift
exec "$python" -c '
import os
import runpy
import sys

import torch

print("peer: PyTorch", torch.__version__, flush=True)
del sys.argv[0]
sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
sys.path.insert(1, os.path.abspath("tools/peer"))
runpy.run_path(sys.argv[0], run_name="__main__")
' "$@"
