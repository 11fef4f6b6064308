// Reduces a block of elements at a time. Each source that includes this compiles a separate copy, as explained in
// kernels.h.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_BLOCKS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/shm/internal/formats.h"

namespace lockstep::comm::shm::internal {
namespace {

// Elements at a time: the accumulators stay in the first-level cache.
constexpr size_t kBlock = 512;

template <typename T>
struct ComplexValue {
  T real, imaginary;
};

// Signed integers are summed as unsigned ones: overflow wraps.
template <typename T>
struct Sum {
  static T Apply(T a, T b) { return static_cast<T>(a + b); }
};
template <typename T>
struct Product {
  static T Apply(T a, T b) { return static_cast<T>(a * b); }
};
// uint16_t would multiply as int, and overflow.
template <>
struct Product<uint16_t> {
  static uint16_t Apply(uint16_t a, uint16_t b) { return static_cast<uint16_t>(uint32_t{a} * b); }
};
template <typename T>
struct Sum<ComplexValue<T>> {
  static ComplexValue<T> Apply(ComplexValue<T> a, ComplexValue<T> b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};
template <typename T>
struct Product<ComplexValue<T>> {
  static ComplexValue<T> Apply(ComplexValue<T> a, ComplexValue<T> b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
};
// a != a: NaN wins.
template <typename T>
struct Min {
  static T Apply(T a, T b) { return a < b || a != a ? a : b; }
};
template <typename T>
struct Max {
  static T Apply(T a, T b) { return a > b || a != a ? a : b; }
};
template <typename T>
struct Band {
  static T Apply(T a, T b) { return static_cast<T>(a & b); }
};
template <typename T>
struct Bor {
  static T Apply(T a, T b) { return static_cast<T>(a | b); }
};
template <typename T>
struct Bxor {
  static T Apply(T a, T b) { return static_cast<T>(a ^ b); }
};

template <typename T>
struct Keep {
  static T Apply(T sum, int) { return sum; }
};
template <typename T>
struct Divide {
  static T Apply(T sum, int n) { return sum / static_cast<T>(n); }
};
template <typename T>
struct Divide<ComplexValue<T>> {
  static ComplexValue<T> Apply(ComplexValue<T> sum, int n) {
    return {sum.real / static_cast<T>(n), sum.imaginary / static_cast<T>(n)};
  }
};

// Reads the second of the first two inputs first. On an EPYC, two ranks then all-reduce 25 MiB in place in 0.8 to 0.9
// of the time.
template <typename Format, typename Combine, typename Finish>
void SumBlock(typename Format::Value* sum, const char* const* inputs, int inputs_count, size_t offset, size_t n) {
  using Value = typename Format::Value;
  int k = 1;
  if constexpr (Format::kByElement) {
    if (inputs_count > 1) {
      const char *const first = inputs[0] + offset, *const second = inputs[1] + offset;
      for (size_t i = 0; i < n; ++i) {
        const Value right = Format::At(second, i);
        sum[i] = Combine::Apply(Format::At(first, i), right);
      }
      k = 2;
    }
  }
  if (k == 1) Format::Load(sum, inputs[0] + offset, n);
  for (; k < inputs_count; ++k) {
    alignas(64) Value next[kBlock];
    Format::Load(next, inputs[k] + offset, n);
    for (size_t i = 0; i < n; ++i) sum[i] = Combine::Apply(sum[i], next[i]);
  }
  for (size_t i = 0; i < n; ++i) sum[i] = Finish::Apply(sum[i], inputs_count);
}

inline void CopyToAll(char* const* outputs, int outputs_count, size_t offset, const void* from, size_t bytes) {
  for (int k = 0; k < outputs_count; ++k) CopyOut(outputs[k] + offset, from, bytes);
}

template <typename Format, typename Combine, typename Finish>
void ReduceBlock(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t offset,
                 size_t n) {
  alignas(64) typename Format::Value sum[kBlock];
  SumBlock<Format, Combine, Finish>(sum, inputs, inputs_count, offset, n);
  if constexpr (Format::kByElement) {
    CopyToAll(outputs, outputs_count, offset, sum, n * sizeof(typename Format::Stored));
  } else {
    alignas(64) typename Format::Stored stored[kBlock];
    Format::Store(reinterpret_cast<char*>(stored), sum, n);
    CopyToAll(outputs, outputs_count, offset, stored, n * sizeof(typename Format::Stored));
  }
}

}  // namespace
}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_BLOCKS_H_
