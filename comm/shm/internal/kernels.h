// The reductions' inner loops. Each source that includes this header compiles them for the instruction set in force
// there: everything is in an anonymous namespace, so that no two versions become one at link time.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_KERNELS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/shm/internal/blocks.h"
#include "lockstep/comm/shm/internal/formats.h"
#include "lockstep/comm/shm/internal/pairs.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::shm::internal {

ReduceFunction BaselineKernel(DType dtype, Op op);
TreeSumFunction BaselineTreeSum(DType dtype);
// Require AVX2 and F16C. Null where this build has none.
ReduceFunction Avx2Kernel(DType dtype, Op op);
TreeSumFunction Avx2TreeSum(DType dtype);
// Requires AVX-512 F and BW as well. Only for 16-bit floats: the others are as fast as memory with less.
ReduceFunction Avx512Kernel(DType dtype, Op op);

namespace {  // one version a source, as said above

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
    CopyToAll(outputs, outputs_count, offset, sum, n * sizeof(T));
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
#if defined(LOCKSTEP_SHM_AVX2)
      return PairKernel<Halves>(op);
#else
      return FloatingKernel<Float16>(op);
#endif
    case DType::kBFloat16:
      return PairKernel<Brains>(op);
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
