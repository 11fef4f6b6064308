#include "lockstep/sampler/torch_permutation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>

namespace lockstep::sampler {
namespace {

// From here on PyTorch draws 64 bits a step, and swaps with an earlier element.
constexpr int64_t kFirstLargeSize = std::numeric_limits<uint32_t>::max() / 20;
constexpr int64_t kLargestNarrowSize = int64_t{1} << 32;

// Memory is prefetched this many steps ahead. 32 to 128 take the same time, in cache and in DRAM.
constexpr int kBlock = 64;

// A virtual machine takes 3 us for the first access to each small page, which doubled the time of 1.28 million indices.
// In DRAM a step takes 18 ns with huge pages and 30 to 50 ns without.
constexpr size_t kHugePage = size_t{2} << 20;

bool StepsAreDoneAtOnce(int64_t size) { return size >= kFirstLargeSize; }

bool Wide(int64_t size) { return size > kLargestNarrowSize; }

size_t BytesOf(int64_t size) {
  const size_t width = Wide(size) ? sizeof(uint64_t) : sizeof(uint32_t);
  if (size > std::numeric_limits<size_t>::max() / width) throw std::bad_alloc();
  const size_t bytes = size * width;
  return bytes < kHugePage ? bytes : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

void* Map(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  madvise(data, bytes, MADV_HUGEPAGE);  // without huge pages this has no effect
  return data;
}

}  // namespace

TorchPermutation::Generator::Generator(uint32_t seed) : state_(624) {
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

void TorchPermutation::Zeros::Unmap::operator()(void* data) const { munmap(data, bytes); }

TorchPermutation::Zeros::Zeros(size_t bytes) : data_(Map(bytes), Unmap{bytes}) {}

TorchPermutation::Zeros::Zeros(const Zeros& other) : Zeros(other.data_.get_deleter().bytes) {
  std::memcpy(data_.get(), other.data_.get(), data_.get_deleter().bytes);
}

TorchPermutation::TorchPermutation(int64_t size, uint64_t seed)
    : size_(size), generator_(static_cast<uint32_t>(seed)), table_(BytesOf(size)) {}

// The position with which the element at position `step` is swapped.
inline int64_t TorchPermutation::Partner(int64_t step) {
  if (!StepsAreDoneAtOnce(size_)) return step + generator_() % static_cast<uint32_t>(size_ - step);
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
  StepUpTo<T>(StepsAreDoneAtOnce(size_) ? size_ : first + (count - 1) * stride + 1);
  const T* const table = table_.As<T>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = first + i * stride;
    out[i] = table[position] ^ position;
  }
}

void TorchPermutation::Fill(int64_t first, int64_t stride, int64_t count, int64_t* out) {
  Wide(size_) ? FillAs<uint64_t>(first, stride, count, out) : FillAs<uint32_t>(first, stride, count, out);
}

}  // namespace lockstep::sampler
