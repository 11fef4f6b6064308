// How fast TokenDataset reads random blocks of 1,024 and of 16,384 tokens of 16 bits from a file of 1 GB in the page
// cache, in bytes of tokens; and its limits, the system call and memory.
//
//   ./bazelw run //data/tokens:token_dataset_benchmark

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/token_dataset.h"

namespace lockstep::data {
namespace {

constexpr int64_t kBytes = int64_t{1} << 30;

// A file without a name in the folder of temporary files, read once.
int TheFile() {
  static const int file = [] {
    const char* const folder = getenv("TMPDIR");
    const int made = open(folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    std::vector<uint16_t> tokens(1 << 20);
    std::iota(tokens.begin(), tokens.end(), uint16_t{0});
    for (int64_t done = 0; done < kBytes; done += tokens.size() * 2) {
      if (write(made, tokens.data(), tokens.size() * 2) != tokens.size() * 2) abort();
    }
    return made;
  }();
  return file;
}

std::string PathOf(int file) { return "/proc/self/fd/" + std::to_string(file); }

const char* MappedFile() {
  static void* const memory = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_POPULATE, TheFile(), 0);
  return memory == MAP_FAILED ? nullptr : static_cast<const char*>(memory);
}

// Calls read(block) for random blocks.
template <typename Read>
void Measure(benchmark::State& state, const Read& read) {
  std::mt19937_64 random(1);
  const int64_t blocks = kBytes / 2 / state.range(0) - 1;
  for (auto _ : state) read(static_cast<int64_t>(random() % blocks));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

void BM_TokenDataset(benchmark::State& state) {
  const int64_t size = state.range(0);
  const auto dataset = TokenDataset::Create({{{PathOf(TheFile())}}}, {.block = size}).value();
  at::Generator random = at::detail::createCPUGenerator(0);
  at::Tensor data = at::empty({size}, at::kLong), target = at::empty({size}, at::kLong);
  Measure(state, [&](int64_t block) {
    if (!dataset->GetInto(block, random, data, target).ok()) abort();
  });
}
BENCHMARK(BM_TokenDataset)->Arg(1024)->Arg(16384);

// pread() alone, which copies the block once.
void BM_Pread(benchmark::State& state) {
  std::vector<char> bytes(state.range(0) * 2 + 2);
  const int file = TheFile();
  Measure(state, [&](int64_t block) {
    if (pread(file, bytes.data(), bytes.size(), block * state.range(0) * 2) != bytes.size()) abort();
  });
}
BENCHMARK(BM_Pread)->Arg(1024)->Arg(16384);

// Copies blocks from a mapped file, whose pages are all there.
void BM_Memcpy(benchmark::State& state) {
  std::vector<char> bytes(state.range(0) * 2 + 2);
  const char* const file = MappedFile();
  Measure(state, [&](int64_t block) {
    memcpy(bytes.data(), file + block * state.range(0) * 2, bytes.size());
    benchmark::DoNotOptimize(bytes.data());
    benchmark::ClobberMemory();
  });
}
BENCHMARK(BM_Memcpy)->Arg(1024)->Arg(16384);

// Writing alone: an example has 16 bytes for each token of 2, here in 64 MB that do not fit a cache.
void BM_WriteExamples(benchmark::State& state) {
  const size_t size = state.range(0) * 16;
  std::vector<char> memory(64 << 20);
  Measure(state, [&](int64_t block) {
    memset(memory.data() + block * size % (memory.size() - size), 1, size);
    benchmark::ClobberMemory();
  });
}
BENCHMARK(BM_WriteExamples)->Arg(1024)->Arg(16384);

}  // namespace
}  // namespace lockstep::data

BENCHMARK_MAIN();
