#!/usr/bin/env bash
# Searches for files that break a reader, under address and undefined-behaviour sanitizers.
#
#   tools/fuzz/run.sh FUZZER [SECONDS]
#
# FUZZER is zip_fuzzer, pickle_fuzzer, safetensors_fuzzer or image_decoder_fuzzer. SECONDS is 600 by default. Inputs that reach new
# code are kept in the cache folder and start the next run. An input that breaks the reader is left in the working directory, named
# crash-*, and the exit code is not 0. The readers need no LibTorch, so clang compiles them without Bazel. The image libraries are the
# system's: the sanitizers see only their heap and their arguments.
set -euo pipefail

fuzzer=${1:-}
seconds=${2:-600}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case $fuzzer in
zip_fuzzer | pickle_fuzzer | safetensors_fuzzer) folder=checkpoint ;;
image_decoder_fuzzer) folder=data ;;
*)
  sed -n '4,6p' "${BASH_SOURCE[0]}" | cut -c3- >&2
  exit 2
  ;;
esac
if ! command -v clang++ >/dev/null || [[ ! -e $(clang++ -print-file-name=libclang_rt.fuzzer-x86_64.a) ]]; then
  echo "fuzz: install clang with libFuzzer (Debian: apt-get install clang libclang-rt-14-dev)" >&2
  exit 1
fi

corpus=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/fuzz/$fuzzer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$corpus" "$work/include" "$work/seeds"
ln -s "$top" "$work/include/lockstep"

compile() {
  local libraries
  read -ra libraries < <(pkg-config --libs absl_status absl_statusor absl_strings absl_str_format absl_flat_hash_map absl_synchronization)
  clang++ -std=c++17 -O1 -g -I"$work/include" "$@" "${libraries[@]}"
}

readonly SANITIZED=(-fsanitize="fuzzer,address,undefined" -fno-sanitize-recover=undefined)

# The tests' files, and the records of the archives among them.
seeds_of_checkpoint() {
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
}

sources=("$top/$folder/fuzz/$fuzzer.cc" "$top/base/status.cc")
if [[ $folder == checkpoint ]]; then
  for layer in file/{byte_stream,foreign_format,in_threads,text} zip/{crc32,reader} \
    pickle/{builder,globals,machine,ops,reader,refusals} safetensors/{header,json_scanner}; do
    sources+=("$top/checkpoint/$layer.cc")
  done
  compile "${SANITIZED[@]}" "${sources[@]}" -lz -o "$work/$fuzzer"
  seeds_of_checkpoint
else
  for layer in image_decoder internal/{jpeg_decoder,jpeg_markers,leptonica_decoder,png_decoder}; do
    sources+=("$top/data/$layer.cc")
  done
  images=(-ljpeg -llept -lpng -lz)
  compile "${SANITIZED[@]}" "${sources[@]}" "${images[@]}" -o "$work/$fuzzer"
  compile "${sources[@]}" "$top"/data/fuzz/replay.cc "$top"/data/testing/{jpeg,png}_files.cc "${images[@]}" -o "$work/replay"
  "$work/replay" "$work/seeds"
fi

"$work/$fuzzer" -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 "$corpus" "$work/seeds"
