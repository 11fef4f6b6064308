#include "lockstep/sampler/torch_permutation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace lockstep::sampler {
namespace {

// From here on PyTorch draws 64 bits a step, and swaps with an earlier element.
constexpr int64_t kFirstLargeSize = std::numeric_limits<uint32_t>::max() / 20;
constexpr int64_t kLargestNarrowSize = int64_t{1} << 32;

// Memory is asked for this many steps ahead. 32 to 128 are alike, in cache and out of it.
constexpr int kBlock = 64;

// Huge pages make steps in DRAM twice as fast (18 against 30 to 50 ns at 2e8 indices), and would make the first index
// of a small permutation slower.
constexpr size_t kPage = 4096;
constexpr size_t kFewestBytesInHugePages = size_t{64} << 20;

bool Wide(int64_t size) { return size > kLargestNarrowSize; }

void* AllocateZeros(size_t count, size_t width) {
  const size_t bytes = count * width;
  void* const data = bytes / width == count ? std::calloc(bytes, 1) : nullptr;
  if (data == nullptr) throw std::bad_alloc();
  if (bytes >= kFewestBytesInHugePages) {
    char* const first_page = static_cast<char*>(data) + (-reinterpret_cast<uintptr_t>(data)) % kPage;
    madvise(first_page, bytes - kPage, MADV_HUGEPAGE);  // Where there are none it fails, and nothing is lost.
  }
  return data;
}

}  // namespace

TorchPermutation::Generator::Generator(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < state_.size(); ++i) {
    state_[i] = 1812433253 * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void TorchPermutation::Generator::Refill() {
  const auto twist = [this](int i, int next, int far) {
    const uint32_t joined = (state_[i] & 0x80000000) | (state_[next] & 0x7fffffff);
    state_[i] = state_[far] ^ (joined >> 1) ^ (-(joined & 1) & 0x9908b0df);
  };
  for (int i = 0; i < 227; ++i) twist(i, i + 1, i + 397);
  for (int i = 227; i < 623; ++i) twist(i, i + 1, i - 227);
  twist(623, 0, 396);
  used_ = 0;
}

inline uint32_t TorchPermutation::Generator::operator()() {
  if (used_ == state_.size()) Refill();
  uint32_t word = state_[used_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680;
  word ^= (word << 15) & 0xefc60000;
  return word ^ (word >> 18);
}

TorchPermutation::Zeros::Zeros(size_t count, size_t width)
    : bytes_(count * width), data_(AllocateZeros(count, width), &std::free) {}

TorchPermutation::Zeros::Zeros(const Zeros& other) : Zeros(other.bytes_, 1) {
  std::memcpy(data_.get(), other.data_.get(), bytes_);
}

TorchPermutation::Zeros& TorchPermutation::Zeros::operator=(Zeros other) {
  std::swap(bytes_, other.bytes_);
  data_.swap(other.data_);
  return *this;
}

TorchPermutation::TorchPermutation(int64_t size, uint64_t seed)
    : size_(size), generator_(static_cast<uint32_t>(seed)), table_(size, Wide(size) ? 8 : 4) {}

// What the element at position `step` changes places with.
inline int64_t TorchPermutation::Partner(int64_t step) {
  if (size_ < kFirstLargeSize) return step + generator_() % static_cast<uint32_t>(size_ - step);
  const uint64_t high = generator_();
  return ((high << 32) | generator_()) % static_cast<uint64_t>(step + 1);
}

template <typename T>
void TorchPermutation::StepUpTo(int64_t end) {
  T* const table = table_.As<T>();
  while (done_ < end) {
    const int count = std::min<int64_t>(kBlock, end - done_);
    T partners[kBlock];
    for (int i = 0; i < count; ++i) {
      partners[i] = Partner(done_ + i);
      __builtin_prefetch(&table[partners[i]], /*rw=*/1);
    }
    for (int i = 0; i < count; ++i) {
      const T position = done_ + i, partner = partners[i], moved = table[position] ^ position ^ partner;
      table[position] = table[partner] ^ partner ^ position;
      table[partner] = moved;
    }
    done_ += count;
  }
}

template <typename T>
void TorchPermutation::FillAs(int64_t first, int64_t stride, int64_t count, int64_t* out) {
  StepUpTo<T>(size_ < kFirstLargeSize ? first + (count - 1) * stride + 1 : size_);
  const T* const table = table_.As<T>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = first + i * stride;
    out[i] = table[position] ^ position;
  }
}

void TorchPermutation::Fill(int64_t first, int64_t stride, int64_t count, int64_t* out) {
  if (count == 0) return;
  Wide(size_) ? FillAs<uint64_t>(first, stride, count, out) : FillAs<uint32_t>(first, stride, count, out);
}

}  // namespace lockstep::sampler
