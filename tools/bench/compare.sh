#!/bin/sh
# usage: compare ARGUMENT...    by `bazel run`, or as bazel-bin/tools/bench/compare
set -eu
exec python3 "$0.runfiles/lockstep/tools/bench/compare.py" "$@"
