// The reductions' inner loops. Each source that includes this header compiles them for the instruction set in force
// there: everything is in an anonymous namespace, so that no two versions become one at link time.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_KERNELS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_KERNELS_H_

#include <cstdint>
#include <cstring>

#include "lockstep/comm/shm/internal/formats.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::shm::internal {

ReduceFunction BaselineKernel(DType dtype, Op op);
TreeSumFunction BaselineTreeSum(DType dtype);
// Require AVX2 and F16C. Null where this build has none.
ReduceFunction Avx2Kernel(DType dtype, Op op);
TreeSumFunction Avx2TreeSum(DType dtype);

namespace {  // one version a source, as said above

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

// Of the first two inputs the second is read first. On an EPYC, two ranks then all-reduce 25 MiB in place in 0.8 to 0.9 of
// the time.
template <typename Format, typename Combine, typename Finish>
void ReduceBlock(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t offset,
                 size_t n) {
  using Value = typename Format::Value;
  alignas(64) Value sum[kBlock];
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
  // Rounded once; the others are copies.
  Format::Store(outputs[0] + offset, sum, n);
  for (k = 1; k < outputs_count; ++k)
    CopyOut(outputs[k] + offset, outputs[0] + offset, n * sizeof(typename Format::Stored));
}

template <typename Format, typename Combine, typename Finish>
void Reduce(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t count,
            const double*) {
  constexpr size_t kSize = sizeof(typename Format::Stored);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = count - first < kBlock ? count - first : kBlock;
    ReduceBlock<Format, Combine, Finish>(outputs, outputs_count, inputs, inputs_count, first * kSize, n);
  }
}

// A product must not become part of a fused multiply-add: the target is compiled so.
template <typename T>
void PremulSum(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t count,
               const double* factors) {
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = count - first < kBlock ? count - first : kBlock, offset = first * sizeof(T);
    alignas(64) T sum[kBlock];
    const auto product = [&](int k, size_t i) {
      return Plain<T>::At(inputs[k] + offset, i) * static_cast<T>(factors[k]);
    };
    // The first two at once: memory then has more to do at a time. The second first, as above.
    if (inputs_count == 1) {
      for (size_t i = 0; i < n; ++i) sum[i] = product(0, i);
    } else {
      for (size_t i = 0; i < n; ++i) {
        const T right = product(1, i);
        sum[i] = product(0, i) + right;
      }
    }
    for (int k = 2; k < inputs_count; ++k) {
      for (size_t i = 0; i < n; ++i) sum[i] += product(k, i);
    }
    CopyOut(outputs[0] + offset, sum, n * sizeof(T));
    for (int k = 1; k < outputs_count; ++k) CopyOut(outputs[k] + offset, outputs[0] + offset, n * sizeof(T));
  }
}

// Rounds values to the format in which they are stored.
template <typename Format>
void RoundToStored(typename Format::Value* values, size_t n) {
  if constexpr (sizeof(typename Format::Stored) != sizeof(typename Format::Value)) {
    char stored[kBlock * sizeof(typename Format::Stored)];
    Format::Store(stored, values, n);
    Format::Load(values, stored, n);
  }
}

// left[i] = left[i] + right[i].
template <typename Format>
void AddStored(typename Format::Value* left, const char* right, size_t n) {
  using Value = typename Format::Value;
  if constexpr (Format::kByElement) {
    for (size_t i = 0; i < n; ++i) left[i] = Sum<Value>::Apply(left[i], Format::At(right, i));
  } else {
    alignas(64) Value next[kBlock];
    Format::Load(next, right, n);
    for (size_t i = 0; i < n; ++i) left[i] = Sum<Value>::Apply(left[i], next[i]);
    RoundToStored<Format>(left, n);
  }
}

template <typename Format>
void TreeSumBlock(char* const* outputs, int outputs_count, const char* const* inputs, const uint8_t* adds,
                  int inputs_count, size_t offset, size_t n, int divisor) {
  using Value = typename Format::Value;
  alignas(64) Value stack[kMostTreeDepth][kBlock];
  int depth = 0;
  for (int k = 0; k < inputs_count; ++k) {
    const char* const input = inputs[k] + offset;
    int left = adds[k];
    if (left > 0) {
      AddStored<Format>(stack[depth - 1], input, n);
      --left;
    } else {
      Format::Load(stack[depth++], input, n);
    }
    for (; left > 0; --left) {
      --depth;
      for (size_t i = 0; i < n; ++i) stack[depth - 1][i] = Sum<Value>::Apply(stack[depth - 1][i], stack[depth][i]);
      RoundToStored<Format>(stack[depth - 1], n);
    }
  }
  if (divisor != 1) {
    for (size_t i = 0; i < n; ++i) stack[0][i] = Divide<Value>::Apply(stack[0][i], divisor);
  }
  Format::Store(outputs[0] + offset, stack[0], n);
  for (int k = 1; k < outputs_count; ++k) {
    CopyOut(outputs[k] + offset, outputs[0] + offset, n * sizeof(typename Format::Stored));
  }
}

template <typename Format>
void TreeSum(char* const* outputs, int outputs_count, const char* const* inputs, const uint8_t* adds, int inputs_count,
             size_t count, int divisor) {
  constexpr size_t kSize = sizeof(typename Format::Stored);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = count - first < kBlock ? count - first : kBlock;
    TreeSumBlock<Format>(outputs, outputs_count, inputs, adds, inputs_count, first * kSize, n, divisor);
  }
}

inline TreeSumFunction TreeSumHere(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return TreeSum<Float16>;
    case DType::kBFloat16:
      return TreeSum<BFloat16>;
    case DType::kFloat32:
      return TreeSum<Plain<float>>;
    case DType::kFloat64:
      return TreeSum<Plain<double>>;
    case DType::kComplex64:
      return TreeSum<Plain<ComplexValue<float>>>;
    case DType::kComplex128:
      return TreeSum<Plain<ComplexValue<double>>>;
    default:
      return nullptr;
  }
}

#if defined(LOCKSTEP_SHM_AVX2)
using Floats = float __attribute__((vector_size(32)));

template <>
struct Divide<Floats> {
  static Floats Apply(Floats sum, int n) { return sum / static_cast<float>(n); }
};

// bfloat16 by words of two: each half of a word is the upper half of a float, so nothing is moved across a register.
struct Brains {
  Floats even, odd;
};
inline Brains LoadBrains(const char* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i upper = _mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), _mm256_castsi256_ps(upper)};
}

// Rounds to nearest even, into the upper half. The lower half is undefined. The payload of a NaN may change.
inline __m256i RoundToBrains(Floats values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}
inline bool AnyNan(Brains values) {
  return _mm256_movemask_ps(_mm256_cmp_ps(values.even, values.odd, _CMP_UNORD_Q)) != 0;
}

template <template <typename> class Combine, template <typename> class Finish>
void ReduceBrains(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count, size_t count,
                  const double*) {
  const auto by_element = [&](size_t first, size_t n) {
    ReduceBlock<BFloat16, Combine<float>, Finish<float>>(outputs, outputs_count, inputs, inputs_count, 2 * first, n);
  };
  const size_t whole = count / 16 * 16;
  for (size_t i = 0; i < whole; i += 16) {
    Brains sum = LoadBrains(inputs[0] + 2 * i);
    for (int k = 1; k < inputs_count; ++k) {
      const Brains next = LoadBrains(inputs[k] + 2 * i);
      sum = {Combine<Floats>::Apply(sum.even, next.even), Combine<Floats>::Apply(sum.odd, next.odd)};
    }
    sum = {Finish<Floats>::Apply(sum.even, inputs_count), Finish<Floats>::Apply(sum.odd, inputs_count)};
    if (AnyNan(sum)) {
      by_element(i, 16);
      continue;
    }
    // The odd ones' upper halves over the even ones', moved down.
    const __m256i words =
        _mm256_blend_epi16(_mm256_srli_epi32(RoundToBrains(sum.even), 16), RoundToBrains(sum.odd), 0xaa);
    for (int k = 0; k < outputs_count; ++k) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(outputs[k] + 2 * i), words);
    }
  }
  if (whole != count) by_element(whole, count - whole);
}

inline ReduceFunction BrainKernel(Op op) {
  switch (op) {
    case Op::kSum:
      return ReduceBrains<Sum, Keep>;
    case Op::kAvg:
      return ReduceBrains<Sum, Divide>;
    case Op::kProduct:
      return ReduceBrains<Product, Keep>;
    case Op::kMin:
      return ReduceBrains<Min, Keep>;
    case Op::kMax:
      return ReduceBrains<Max, Keep>;
    default:
      return nullptr;
  }
}
#endif

template <typename Format>
ReduceFunction FloatingKernel(Op op) {
  using Value = typename Format::Value;
  switch (op) {
    case Op::kSum:
      return Reduce<Format, Sum<Value>, Keep<Value>>;
    case Op::kAvg:
      return Reduce<Format, Sum<Value>, Divide<Value>>;
    case Op::kProduct:
      return Reduce<Format, Product<Value>, Keep<Value>>;
    case Op::kMin:
      return Reduce<Format, Min<Value>, Keep<Value>>;
    case Op::kMax:
      return Reduce<Format, Max<Value>, Keep<Value>>;
    case Op::kPremulSum:
      if constexpr (Format::kByElement) return PremulSum<Value>;
      return nullptr;
    default:
      return nullptr;
  }
}

template <typename T>
ReduceFunction ComplexKernel(Op op) {
  using Value = ComplexValue<T>;
  switch (op) {
    case Op::kSum:
      return Reduce<Plain<Value>, Sum<Value>, Keep<Value>>;
    case Op::kAvg:
      return Reduce<Plain<Value>, Sum<Value>, Divide<Value>>;
    case Op::kProduct:
      return Reduce<Plain<Value>, Product<Value>, Keep<Value>>;
    default:
      return nullptr;
  }
}

// `T` compares as the dtype does; `Unsigned` wraps.
template <typename T, typename Unsigned>
ReduceFunction IntegerKernel(Op op) {
  switch (op) {
    case Op::kSum:
      return Reduce<Plain<Unsigned>, Sum<Unsigned>, Keep<Unsigned>>;
    case Op::kProduct:
      return Reduce<Plain<Unsigned>, Product<Unsigned>, Keep<Unsigned>>;
    case Op::kMin:
      return Reduce<Plain<T>, Min<T>, Keep<T>>;
    case Op::kMax:
      return Reduce<Plain<T>, Max<T>, Keep<T>>;
    case Op::kBand:
      return Reduce<Plain<Unsigned>, Band<Unsigned>, Keep<Unsigned>>;
    case Op::kBor:
      return Reduce<Plain<Unsigned>, Bor<Unsigned>, Keep<Unsigned>>;
    case Op::kBxor:
      return Reduce<Plain<Unsigned>, Bxor<Unsigned>, Keep<Unsigned>>;
    case Op::kAvg:
    case Op::kPremulSum:
      return nullptr;
  }
  return nullptr;
}

// Booleans are bytes of 0 or 1.
inline ReduceFunction BoolKernel(Op op) {
  switch (op) {
    case Op::kSum:
    case Op::kMax:
    case Op::kBor:
      return Reduce<Plain<uint8_t>, Bor<uint8_t>, Keep<uint8_t>>;
    case Op::kProduct:
    case Op::kMin:
    case Op::kBand:
      return Reduce<Plain<uint8_t>, Band<uint8_t>, Keep<uint8_t>>;
    case Op::kBxor:
      return Reduce<Plain<uint8_t>, Bxor<uint8_t>, Keep<uint8_t>>;
    case Op::kAvg:
    case Op::kPremulSum:
      return nullptr;
  }
  return nullptr;
}

inline ReduceFunction KernelHere(DType dtype, Op op) {
  switch (dtype) {
    case DType::kBytes:
      return nullptr;
    case DType::kBool:
      return BoolKernel(op);
    case DType::kUInt8:
      return IntegerKernel<uint8_t, uint8_t>(op);
    case DType::kUInt16:
      return IntegerKernel<uint16_t, uint16_t>(op);
    case DType::kUInt32:
      return IntegerKernel<uint32_t, uint32_t>(op);
    case DType::kUInt64:
      return IntegerKernel<uint64_t, uint64_t>(op);
    case DType::kInt8:
      return IntegerKernel<int8_t, uint8_t>(op);
    case DType::kInt16:
      return IntegerKernel<int16_t, uint16_t>(op);
    case DType::kInt32:
      return IntegerKernel<int32_t, uint32_t>(op);
    case DType::kInt64:
      return IntegerKernel<int64_t, uint64_t>(op);
    case DType::kFloat16:
      return FloatingKernel<Float16>(op);
    case DType::kBFloat16:
#if defined(LOCKSTEP_SHM_AVX2)
      return BrainKernel(op);
#else
      return FloatingKernel<BFloat16>(op);
#endif
    case DType::kFloat32:
      return FloatingKernel<Plain<float>>(op);
    case DType::kFloat64:
      return FloatingKernel<Plain<double>>(op);
    case DType::kComplex64:
      return ComplexKernel<float>(op);
    case DType::kComplex128:
      return ComplexKernel<double>(op);
  }
  return nullptr;
}

}  // namespace
}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_KERNELS_H_
