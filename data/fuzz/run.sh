#!/usr/bin/env bash
# Searches for files that break ImageDecoder, under address and undefined-behaviour sanitizers.
#
#   data/fuzz/run.sh [SECONDS]        (600 seconds)
#
# Needs clang with libFuzzer (Debian: apt-get install clang libclang-rt-14-dev). Files that were found useful are kept in the cache folder
# and are the next run's start; one that breaks something is left in the working directory, named crash-*, and the exit code is not 0.
# The image libraries are the system's: of them the sanitizers see what they take from the heap and what they are handed.
set -euo pipefail

seconds=${1:-600}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
corpus=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/fuzz/image_decoder_fuzzer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$corpus" "$work/include" "$work/seeds"
ln -s "$top" "$work/include/lockstep"
compile() {
  clang++ -std=c++17 -O1 -g -I"$work/include" "$@" $(pkg-config --libs absl_status absl_statusor absl_strings) -ljpeg -llept -lpng -lz
}
sources=("$top"/data/fuzz/image_decoder_fuzzer.cc "$top"/data/image_decoder.cc "$top"/base/status.cc)
for layer in jpeg_decoder jpeg_markers leptonica_decoder png_decoder; do
  sources+=("$top/data/internal/$layer.cc")
done
compile -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined "${sources[@]}" -o "$work/fuzzer"
compile "${sources[@]}" "$top"/data/fuzz/replay.cc "$top"/data/testing/{jpeg,png}_files.cc -o "$work/replay"
"$work/replay" "$work/seeds"

"$work/fuzzer" -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 "$corpus" "$work/seeds"
