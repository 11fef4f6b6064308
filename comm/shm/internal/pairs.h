// Reduces 16-bit floats, two vectors of float32 at a time. Each source that includes this compiles a separate copy, as
// explained in kernels.h.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_PAIRS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/comm/shm/internal/blocks.h"
#include "lockstep/comm/shm/internal/formats.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::shm::internal {
namespace {

// The bytes of a vector register.
#if defined(LOCKSTEP_SHM_AVX512)
constexpr int kVector = 64;
#elif defined(LOCKSTEP_SHM_AVX2)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif

using Floats = float __attribute__((vector_size(kVector)));
using Words = uint32_t __attribute__((vector_size(kVector)));

template <>
struct Divide<Floats> {
  static Floats Apply(Floats sum, int n) { return sum / static_cast<float>(n); }
};

struct Pair {
  Floats even, odd;
};

// bfloat16 by words of two: each half of a word is the upper half of a float, so nothing is moved across a register.
struct Brains {
  using Format = BFloat16;
  static Pair Load(const char* from) {
    Words words;
    memcpy(&words, from, sizeof(words));
    return {reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xffff0000)};
  }
  // To nearest even. A NaN may become an infinity.
  static Words Round(Floats values) {
    const Words bits = reinterpret_cast<Words>(values);
    return bits + 0x7fff + ((bits >> 16) & 1);
  }
  static void Store(char* to, Pair values) {
    const Words words = (Round(values.even) >> 16) | (Round(values.odd) & 0xffff0000);
    memcpy(to, &words, sizeof(words));
  }
};

#if defined(LOCKSTEP_SHM_AVX512)
struct Halves {
  using Format = Float16;
  static __m256i LoadBits(const char* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Pair Load(const char* from) { return {_mm512_cvtph_ps(LoadBits(from)), _mm512_cvtph_ps(LoadBits(from + 32))}; }
  static __m256i Bits(Floats values) { return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT); }
  static void Store(char* to, Pair values) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Bits(values.even));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), Bits(values.odd));
  }
};
#elif defined(LOCKSTEP_SHM_AVX2)
struct Halves {
  using Format = Float16;
  static __m128i LoadBits(const char* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static Pair Load(const char* from) { return {_mm256_cvtph_ps(LoadBits(from)), _mm256_cvtph_ps(LoadBits(from + 16))}; }
  static __m128i Bits(Floats values) { return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT); }
  static void Store(char* to, Pair values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), Bits(values.even));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), Bits(values.odd));
  }
};
#endif

// In one pass, for Brains or Halves. A block with a NaN, or with infinities of both signs, is reduced once more,
// element by element.
template <typename Vectors, template <typename> class Combine, template <typename> class Finish>
void ReducePairs(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t count,
                 const double*) {
  const auto by_element = [&](size_t first, size_t n) {
    ReduceBlock<typename Vectors::Format, Combine<float>, Finish<float>>(outputs, outputs_count, inputs, inputs_count,
                                                                         2 * first, n);
  };
  const size_t rest = count % kBlock, whole = count - rest;
  for (size_t first = 0; first < whole; first += kBlock) {
    alignas(64) char block[2 * kBlock];
    Floats total = {};  // NaN if anything is
    for (size_t at = 0; at < sizeof(block); at += kVector) {
      const size_t from = 2 * first + at;
      Pair sum = Vectors::Load(inputs[0] + from);
      for (int k = 1; k < inputs_count; ++k) {
        const Pair next = Vectors::Load(inputs[k] + from);
        sum = {Combine<Floats>::Apply(sum.even, next.even), Combine<Floats>::Apply(sum.odd, next.odd)};
      }
      sum = {Finish<Floats>::Apply(sum.even, inputs_count), Finish<Floats>::Apply(sum.odd, inputs_count)};
      total += sum.even + sum.odd;
      Vectors::Store(block + at, sum);
    }
    float sums[kVector / sizeof(float)], all = 0;
    memcpy(sums, &total, sizeof(sums));
    for (const float sum : sums) all += sum;
    if (all != all) {
      by_element(first, kBlock);
    } else {
      CopyToAll(outputs, outputs_count, 2 * first, block, sizeof(block));
    }
  }
  if (rest != 0) by_element(whole, rest);
}

template <typename Vectors>
ReduceFunction PairKernel(Op op) {
  switch (op) {
    case Op::kSum:
      return ReducePairs<Vectors, Sum, Keep>;
    case Op::kAvg:
      return ReducePairs<Vectors, Sum, Divide>;
    case Op::kProduct:
      return ReducePairs<Vectors, Product, Keep>;
    case Op::kMin:
      return ReducePairs<Vectors, Min, Keep>;
    case Op::kMax:
      return ReducePairs<Vectors, Max, Keep>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_PAIRS_H_
