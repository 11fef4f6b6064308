#!/usr/bin/env bash
# Searches for files that break a reader, under address and undefined-behaviour sanitizers.
#
#   tools/fuzz/run.sh FUZZER... [SECONDS]
#
# FUZZER is zip_fuzzer, pickle_fuzzer, legacy_fuzzer, safetensors_fuzzer, program_fuzzer or image_decoder_fuzzer. SECONDS is 600 by
# default.
#
# Several fuzzers run at once, and each writes to FUZZER.log in the working directory. Inputs that reach new code are kept in the
# cache folder and start the next run. An input that breaks the reader is left in the working directory, named crash-*, and the exit
# code is not 0. The readers need no LibTorch, so clang compiles them without Bazel. The image libraries are the system's: the
# sanitizers see only their heap and their arguments.
set -euo pipefail

fuzzers=()
seconds=600
for argument in "$@"; do
  case $argument in
  zip_fuzzer | pickle_fuzzer | legacy_fuzzer | safetensors_fuzzer | program_fuzzer | image_decoder_fuzzer) fuzzers+=("$argument") ;;
  *[!0-9]* | "") fuzzers=() && break ;;
  *) seconds=$argument ;;
  esac
done
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ((${#fuzzers[@]} == 0)); then
  sed -n '4,6p' "${BASH_SOURCE[0]}" | cut -c3- >&2
  exit 2
fi
if ! command -v clang++ >/dev/null || [[ ! -e $(clang++ -print-file-name=libclang_rt.fuzzer-x86_64.a) ]]; then
  echo "fuzz: install clang with libFuzzer (Debian: apt-get install clang libclang-rt-14-dev)" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/include" "$work/objects"
ln -s "$top" "$work/include/lockstep"
read -ra abseil < <(pkg-config --libs absl_status absl_statusor absl_strings absl_str_format absl_flat_hash_map absl_synchronization)

# Line numbers are all that a report shows of what -g gives.
readonly SANITIZED=(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
readonly COMPILE=(clang++ -std=c++17 -O1 -g1 -I"$work/include" "${SANITIZED[@]}" -fsanitize=fuzzer-no-link)

# objects SOURCE...: sets `objects` to what they are compiled to.
objects() {
  local source
  objects=()
  for source in "$@"; do objects+=("$work/objects/${source//\//.}.o"); done
}

# compile SOURCE...: as many at once as there are processors.
compile() {
  local source
  for source in "$@"; do
    objects "$source"
    printf '%s\n' -c "$source" -o "${objects[0]}"
  done | xargs -d '\n' -n 4 -P "$(nproc)" "${COMPILE[@]}" -include "$work/abseil_headers.h"
}

# seeds FOLDER FILE...: the files that are small, and the records of the archives among them.
seeds() {
  python3 - "$@" <<'PYTHON'
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

# The sources of each folder, compiled once for all of its fuzzers.
checkpoint=("$top/base/status.cc")
for layer in file/{byte_stream,foreign_format,in_threads,text} zip/{crc32,reader} \
  pickle/{builder,globals,machine,reader,refusals} archive/legacy safetensors/{header,json_scanner}; do
  checkpoint+=("$top/checkpoint/$layer.cc")
done
programs=("$top"/{base/status,checkpoint/pt2/{json_reader,payload},models/exported/{graph,graph_parser,node_parser}}.cc)
data=("$top/base/status.cc")
for layer in image_decoder internal/{bmp_decoder,foreign_kind,jpeg_decoder,jpeg_markers,leptonica,png_decoder,pnm_decoder,tiff_colors,tiff_decoder,tiff_directory,tiff_kind,webp_decoder}; do
  data+=("$top/data/$layer.cc")
done
replay=("$top"/data/fuzz/replay.cc "$top"/data/testing/{jpeg,png,tiff}_files.cc)
images=(-ljpeg -llept -lpng -lz)

sources=()
for fuzzer in "${fuzzers[@]}"; do
  case $fuzzer in
  image_decoder_fuzzer) sources+=("$top/data/fuzz/$fuzzer.cc" "${data[@]}" "${replay[@]}") ;;
  program_fuzzer) sources+=("$top/models/exported/fuzz/$fuzzer.cc" "${programs[@]}") ;;
  *) sources+=("$top/checkpoint/fuzz/$fuzzer.cc" "${checkpoint[@]}") ;;
  esac
done
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | sort -u)
: >"$work/abseil_headers.h"
"${COMPILE[@]}" -Xclang -fpch-instantiate-templates -x c++-header "$top/tools/abseil_headers.h" -o "$work/abseil_headers.h.pch"
compile "${sources[@]}"

mkdir "$work"/seeds_of_{checkpoint,data,programs}
for fuzzer in "${fuzzers[@]}"; do
  if [[ $fuzzer == image_decoder_fuzzer ]]; then
    objects "$top/data/fuzz/$fuzzer.cc" "${data[@]}"
    libraries=("${images[@]}" "${abseil[@]}")
    clang++ "${SANITIZED[@]}" -fsanitize=fuzzer "${objects[@]}" "${libraries[@]}" -o "$work/$fuzzer"
    linked=("${objects[@]}")
    objects "${replay[@]}"
    clang++ "${SANITIZED[@]}" -fsanitize=fuzzer-no-link "${objects[@]}" "${linked[@]}" "${libraries[@]}" -o "$work/replay"
    "$work/replay" "$work/seeds_of_data"
  elif [[ $fuzzer == program_fuzzer ]]; then
    objects "$top/models/exported/fuzz/$fuzzer.cc" "${programs[@]}"
    clang++ "${SANITIZED[@]}" -fsanitize=fuzzer "${objects[@]}" "${abseil[@]}" -o "$work/$fuzzer"
    seeds "$work/seeds_of_programs" "$top/models/exported/fuzz/small.pt2"
  else
    objects "$top/checkpoint/fuzz/$fuzzer.cc" "${checkpoint[@]}"
    clang++ "${SANITIZED[@]}" -fsanitize=fuzzer "${objects[@]}" "${abseil[@]}" -lz -o "$work/$fuzzer"
    [[ $(ls "$work/seeds_of_checkpoint") ]] ||
      seeds "$work/seeds_of_checkpoint" "$top"/checkpoint/testdata/* "$top"/checkpoint/sharded/testdata/*/.metadata
  fi
done

search() {
  local fuzzer=$1 seeds=$work/seeds_of_checkpoint
  local corpus=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/fuzz/$fuzzer
  [[ $fuzzer != image_decoder_fuzzer ]] || seeds=$work/seeds_of_data
  [[ $fuzzer != program_fuzzer ]] || seeds=$work/seeds_of_programs
  mkdir -p "$corpus"
  "$work/$fuzzer" -max_total_time="$seconds" -max_len=32768 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 "$corpus" "$seeds"
}

if ((${#fuzzers[@]} == 1)); then
  search "${fuzzers[0]}"
  exit
fi
pids=()
for fuzzer in "${fuzzers[@]}"; do
  search "$fuzzer" >"$fuzzer.log" 2>&1 &
  pids+=($!)
done
failures=0
for index in "${!pids[@]}"; do
  wait "${pids[index]}" || {
    failures=1
    tail -n 50 "${fuzzers[index]}.log"
  }
  grep -h stat::number_of_executed_units "${fuzzers[index]}.log" | sed "s/^/${fuzzers[index]}: /"
done
exit "$failures"
