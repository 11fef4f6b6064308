#!/usr/bin/env bash
# Searches for inputs that break a reader, under address and undefined-behaviour sanitizers.
#
#   checkpoint/fuzz/run.sh zip_fuzzer [SECONDS]        (also pickle_fuzzer, safetensors_fuzzer; 600 seconds)
#
# Needs clang with libFuzzer (Debian: apt-get install clang libclang-rt-14-dev). The readers and fuzzers compile without LibTorch, so
# clang compiles them directly. The cache folder keeps the useful inputs for the next run. An input that breaks a reader is left in
# the working directory as crash-*, and the exit code is not 0.
set -euo pipefail

fuzzer=$1
seconds=${2:-600}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
corpus=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/fuzz/$fuzzer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$corpus" "$work/include"
ln -s "$top" "$work/include/lockstep"
sources=("$top/checkpoint/fuzz/$fuzzer.cc" "$top/base/status.cc")
for layer in file/{byte_stream,foreign_format,in_threads,text} zip/{crc32,reader} \
  pickle/{builder,globals,machine,ops,reader,refusals} safetensors/{header,json_scanner}; do
  sources+=("$top/checkpoint/$layer.cc")
done
clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I"$work/include" "${sources[@]}" \
  -o "$work/$fuzzer" $(pkg-config --libs absl_status absl_statusor absl_strings absl_str_format absl_flat_hash_map absl_synchronization) -lz

# The tests' files, and the records of the archives among them.
mkdir "$work/seeds"
python3 - "$work/seeds" "$top"/checkpoint/testdata/* "$top"/checkpoint/sharded/testdata/*/.metadata <<'PYTHON'
import pathlib
import sys
import zipfile

for number, path in enumerate(map(pathlib.Path, sys.argv[2:])):
    seeds = {path.name: path.read_bytes()}
    if zipfile.is_zipfile(path) and path.name != "no_crc.pt":  # Python's zipfile refuses it
        with zipfile.ZipFile(path) as archive:
            seeds.update({f"{path.name}.{name.replace('/', '.')}": archive.read(name) for name in archive.namelist()})
    for name, contents in seeds.items():
        if len(contents) < 1 << 16:
            pathlib.Path(sys.argv[1], f"{number}.{name}").write_bytes(contents)
PYTHON

"$work/$fuzzer" -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 "$corpus" "$work/seeds"
