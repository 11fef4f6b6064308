#include "lockstep/comm/shm/reduce.h"

#include <gtest/gtest.h>
#include <string.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/comm/shm/internal/kernels.h"

namespace lockstep::comm::shm {
namespace {

constexpr DType kDTypes[] = {DType::kBool,     DType::kUInt8,   DType::kUInt16,  DType::kUInt32,    DType::kUInt64,
                             DType::kInt8,     DType::kInt16,   DType::kInt32,   DType::kInt64,     DType::kFloat16,
                             DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128};

template <typename T>
std::vector<T> Reduce(DType dtype, Op op, const std::vector<std::vector<T>>& inputs,
                      const std::vector<double>& factors = {}) {
  std::vector<T> output(inputs[0].size());
  std::vector<const char*> from;
  for (const auto& input : inputs) from.push_back(reinterpret_cast<const char*>(input.data()));
  char* const to = reinterpret_cast<char*>(output.data());
  ReduceFunctionFor(dtype, op)(&to, 1, from.data(), static_cast<int>(from.size()), output.size(), factors.data());
  return output;
}

TEST(Reduce, ReducesInTheOrderOfItsInputs) {
  // (1e8 + 1) + -1e8 is 0 in float32; another order gives 1.
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kSum, {{1e8F}, {1.0F}, {-1e8F}}), std::vector<float>{0.0F});
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kSum, {{1e8F}, {-1e8F}, {1.0F}}), std::vector<float>{1.0F});
}

TEST(Reduce, HasEveryReductionOfIntegers) {
  const std::vector<std::vector<int32_t>> inputs = {{6, -7}, {3, 5}};
  EXPECT_EQ(Reduce(DType::kInt32, Op::kSum, inputs), (std::vector<int32_t>{9, -2}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kProduct, inputs), (std::vector<int32_t>{18, -35}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kMin, inputs), (std::vector<int32_t>{3, -7}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kMax, inputs), (std::vector<int32_t>{6, 5}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kBand, inputs), (std::vector<int32_t>{2, -7 & 5}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kBor, inputs), (std::vector<int32_t>{7, -7 | 5}));
  EXPECT_EQ(Reduce(DType::kInt32, Op::kBxor, inputs), (std::vector<int32_t>{5, -7 ^ 5}));
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(Reduce<int8_t>(DType::kInt8, Op::kSum, {{127}, {1}}), std::vector<int8_t>{-128});
  EXPECT_EQ(Reduce<uint16_t>(DType::kUInt16, Op::kProduct, {{65535}, {65535}}), std::vector<uint16_t>{1});
  EXPECT_EQ(Reduce<int64_t>(DType::kInt64, Op::kSum, {{std::numeric_limits<int64_t>::max()}, {1}}),
            std::vector<int64_t>{std::numeric_limits<int64_t>::min()});
}

TEST(Reduce, SignedAndUnsignedCompareDifferently) {
  EXPECT_EQ(Reduce<int8_t>(DType::kInt8, Op::kMax, {{-1}, {1}}), std::vector<int8_t>{1});
  EXPECT_EQ(Reduce<uint8_t>(DType::kUInt8, Op::kMax, {{255}, {1}}), std::vector<uint8_t>{255});
}

TEST(Reduce, AverageIsTheSumDividedByTheNumberOfInputs) {
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kAvg, {{1.0F}, {2.0F}, {4.0F}}), std::vector<float>{7.0F / 3.0F});
  EXPECT_EQ(Reduce<std::complex<double>>(DType::kComplex128, Op::kAvg, {{{1, 2}}, {{3, 5}}}),
            (std::vector<std::complex<double>>{{2, 3.5}}));
}

TEST(Reduce, PremulSumMultipliesEachInputByItsOwnFactor) {
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kPremulSum, {{1, 2}, {3, 4}, {5, 6}}, {0.5, 2, -1}),
            (std::vector<float>{1.5F, 3}));
  EXPECT_EQ(Reduce<double>(DType::kFloat64, Op::kPremulSum, {{3}}, {0.5}), std::vector<double>{1.5});
}

TEST(Reduce, PremulSumRoundsTheFactorsAndTheProducts) {
  // Only 1 is left of the exact product 1 - 2^-46, and -1 cancels it; a fused multiply-add would keep the rest.
  const float above = 1 + 0x1p-23F, below = 1 - 0x1p-23F;
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kPremulSum, {{-1}, {above}}, {1, below}), std::vector<float>{0});
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kPremulSum, {{3}, {0}}, {1.0 / 3, 1}),
            std::vector<float>{3 * (1.0F / 3)});
  // Half of the least number is 0, twice.
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Op::kPremulSum, {{least}, {least}}, {0.5, 0.5}), std::vector<float>{0});
}

TEST(Reduce, MultipliesComplexNumbers) {
  EXPECT_EQ(Reduce<std::complex<float>>(DType::kComplex64, Op::kProduct, {{{1, 2}}, {{3, 4}}}),
            (std::vector<std::complex<float>>{{-5, 10}}));
}

TEST(Reduce, NotANumberWinsMinimumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Op op : {Op::kMin, Op::kMax}) {
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kFloat32, op, {{nan}, {1.0F}})[0]));
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kFloat32, op, {{1.0F}, {nan}})[0]));
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kFloat32, op, {{1.0F}, {nan}, {2.0F}})[0]));
  }
}

TEST(Reduce, RefusesWhatMakesNoSense) {
  EXPECT_EQ(ReduceFunctionFor(DType::kInt32, Op::kAvg), nullptr);
  EXPECT_EQ(ReduceFunctionFor(DType::kFloat32, Op::kBand), nullptr);
  EXPECT_EQ(ReduceFunctionFor(DType::kComplex64, Op::kMax), nullptr);
  EXPECT_EQ(ReduceFunctionFor(DType::kBytes, Op::kSum), nullptr);
  for (const DType dtype : {DType::kInt32, DType::kBool, DType::kFloat16, DType::kBFloat16, DType::kComplex64})
    EXPECT_EQ(ReduceFunctionFor(dtype, Op::kPremulSum), nullptr) << NameOf(dtype);
}

// The value of a finite half by its definition.
double HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 15 - 10);
  return half & 0x8000 ? -magnitude : magnitude;
}
double BrainValue(uint16_t brain) {
  const int exponent = brain >> 7 & 255, fraction = brain & 127;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 127 - 7);
  return brain & 0x8000 ? -magnitude : magnitude;
}

// Expects `rounded` to be the value nearest to `exact`, or the even one of two that are equally near.
template <typename Value>
void ExpectNearest(double exact, uint16_t rounded, Value value, uint16_t infinity) {
  const uint16_t magnitude = rounded & 0x7fff;
  if (magnitude == infinity) {
    // Halfway between the largest number and the next that would be one.
    const double largest = value(static_cast<uint16_t>(infinity - 1)),
                 before = value(static_cast<uint16_t>(infinity - 2));
    ASSERT_GE(std::fabs(exact), largest + (largest - before) / 2);
    return;
  }
  const double error = std::fabs(value(rounded) - exact);
  for (const int step : {-1, 1}) {
    const int neighbour = magnitude + step;
    if (neighbour < 0 || neighbour >= infinity) continue;
    const double other = std::fabs(value(static_cast<uint16_t>((rounded & 0x8000) | neighbour)) - exact);
    ASSERT_TRUE(error < other || (error == other && magnitude % 2 == 0)) << exact << " became " << value(rounded);
  }
}

template <typename Value>
void SumsOfTwoRoundToNearestEven(DType dtype, Value value, uint16_t infinity) {
  std::mt19937 random(1);
  std::vector<std::vector<uint16_t>> inputs(2);
  while (inputs[0].size() < 200000) {
    const auto a = static_cast<uint16_t>(random()), b = static_cast<uint16_t>((a & 0xff00) ^ (random() & 0x83ff));
    if ((a & infinity) == infinity || (b & infinity) == infinity) continue;
    inputs[0].push_back(a);
    inputs[1].push_back(b);
  }
  const std::vector<uint16_t> sums = Reduce(dtype, Op::kSum, inputs);
  for (size_t i = 0; i < sums.size(); ++i) {
    // In float32 first, as PyTorch adds them.
    const auto exact = static_cast<float>(value(inputs[0][i]) + value(inputs[1][i]));
    ASSERT_NO_FATAL_FAILURE(ExpectNearest(exact, sums[i], value, infinity));
  }
}

TEST(Reduce, HalvesRoundToNearestEven) { SumsOfTwoRoundToNearestEven(DType::kFloat16, HalfValue, 0x7c00); }
TEST(Reduce, BrainFloatsRoundToNearestEven) { SumsOfTwoRoundToNearestEven(DType::kBFloat16, BrainValue, 0x7f80); }

TEST(Reduce, SixteenBitFloatsAreRoundedOnceHoweverMany) {
  // 2048 + 1 + 1: each step rounded would stay at 2048.
  EXPECT_EQ(Reduce<uint16_t>(DType::kFloat16, Op::kSum, {{0x6800}, {0x3c00}, {0x3c00}}), std::vector<uint16_t>{0x6801});
  // 256 + 1 + 1 in bfloat16.
  EXPECT_EQ(Reduce<uint16_t>(DType::kBFloat16, Op::kSum, {{0x4380}, {0x3f80}, {0x3f80}}),
            std::vector<uint16_t>{0x4381});
}

TEST(Reduce, EveryVersionOfAKernelGivesTheSameBits) {
  std::mt19937_64 random(2);
  constexpr size_t kCount = 3000;  // several blocks, and a rest
  for (const DType dtype : kDTypes) {
    for (const Op op : kOps) {
      const ReduceFunction baseline = internal::BaselineKernel(dtype, op), fast = ReduceFunctionFor(dtype, op);
      ASSERT_EQ(baseline == nullptr, fast == nullptr) << NameOf(dtype) << " " << NameOf(op);
      if (!baseline) continue;
      std::vector<ReduceFunction> versions = {fast};
#if defined(__x86_64__)
      if (__builtin_cpu_supports("avx2")) versions.push_back(internal::Avx2Kernel(dtype, op));
#endif
      const size_t bytes = kCount * SizeOf(dtype);
      std::vector<std::vector<char>> inputs(3, std::vector<char>(bytes + 1));
      for (auto& input : inputs) {
        for (char& byte : input) byte = static_cast<char>(random() >> 7);
        // No infinities, whose sums are NaNs of either sign.
        for (size_t i = SizeOf(dtype); i <= bytes; i += SizeOf(dtype)) input[i] &= static_cast<char>(0xbf);
      }
      std::vector<char> expected(2 * bytes), found(2 * bytes);
      // One byte off: nothing may depend on alignment beyond what x86 allows any load.
      const char* const from[] = {inputs[0].data() + 1, inputs[1].data() + 1, inputs[2].data() + 1};
      char* const to_expected[] = {expected.data(), expected.data() + bytes};
      char* const to_found[] = {found.data(), found.data() + bytes};
      const double factors[] = {0.3, -1.7, 0.01};
      baseline(to_expected, 2, from, 3, kCount, factors);
      for (const ReduceFunction version : versions) {
        version(to_found, 2, from, 3, kCount, factors);
        EXPECT_EQ(expected, found) << NameOf(dtype) << " " << NameOf(op);
        EXPECT_EQ(memcmp(found.data(), found.data() + bytes, bytes), 0) << NameOf(dtype) << " " << NameOf(op);
      }
    }
  }
}

// Blocks of them take a way of their own.
TEST(Reduce, SixteenBitFloatsOfAnyBitsAreReducedAsEachAlone) {
  std::mt19937_64 random(3);
  constexpr size_t kCount = 5000;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const uint16_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
    for (const Op op : {Op::kSum, Op::kAvg, Op::kProduct, Op::kMin, Op::kMax}) {
      std::vector<uint16_t> a(kCount), b(kCount), found(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        a[i] = static_cast<uint16_t>(random());
        b[i] = static_cast<uint16_t>(random());
        // The first blocks have no NaN but infinities, the next ones neither.
        if (i < 3000 && (a[i] & infinity) == infinity) a[i] = i < 1500 ? infinity : uint16_t{0};
        if (i < 3000 && (b[i] & infinity) == infinity) b[i] = i < 1500 ? infinity : uint16_t{1};
      }
      const ReduceFunction reduce = ReduceFunctionFor(dtype, op);
      const char* const from[] = {reinterpret_cast<char*>(a.data()), reinterpret_cast<char*>(b.data())};
      char* const to[] = {reinterpret_cast<char*>(found.data())};
      reduce(to, 1, from, 2, kCount, nullptr);
      for (size_t i = 0; i < kCount; ++i) {
        uint16_t alone = 0;
        const char* const one[] = {from[0] + 2 * i, from[1] + 2 * i};
        char* const to_alone[] = {reinterpret_cast<char*>(&alone)};
        reduce(to_alone, 1, one, 2, 1, nullptr);
        const auto is_nan = [infinity](uint16_t bits) { return (bits & 0x7fff) > infinity; };
        if (is_nan(found[i]) && is_nan(alone)) continue;  // of any payload
        ASSERT_EQ(found[i], alone) << NameOf(dtype) << " " << NameOf(op) << " of " << a[i] << " and " << b[i];
      }
    }
  }
}

TEST(Reduce, AnOutputMayBeAnInput) {
  std::vector<float> a(1500, 1.0F), b(1500, 2.0F);
  const char* const inputs[] = {reinterpret_cast<char*>(a.data()), reinterpret_cast<char*>(b.data())};
  char* const outputs[] = {reinterpret_cast<char*>(a.data()), reinterpret_cast<char*>(b.data())};
  ReduceFunctionFor(DType::kFloat32, Op::kSum)(outputs, 2, inputs, 2, a.size(), nullptr);
  EXPECT_EQ(a, std::vector<float>(1500, 3.0F));
  EXPECT_EQ(b, a);
}

template <typename T>
std::vector<T> TreeSum(DType dtype, const std::vector<std::vector<T>>& inputs, const std::vector<uint8_t>& adds,
                       int divisor, TreeSumFunction function = nullptr) {
  std::vector<T> output(inputs[0].size()), copy(output.size());
  std::vector<const char*> from;
  for (const auto& input : inputs) from.push_back(reinterpret_cast<const char*>(input.data()));
  char* const to[] = {reinterpret_cast<char*>(output.data()), reinterpret_cast<char*>(copy.data())};
  if (!function) function = TreeSumFunctionFor(dtype);
  function(to, 2, from.data(), adds.data(), static_cast<int>(from.size()), output.size(), divisor);
  EXPECT_EQ(output, copy);
  return output;
}

TEST(TreeSum, AddsInTheOrderOfTheTree) {
  // (1e8 + -1e8) + (1 + 1) is 2, and (1e8 + (-1e8 + 1)) + 1 is 1: float32 has no 1e8 - 1.
  const std::vector<std::vector<float>> inputs = {{1e8F}, {-1e8F}, {1}, {1}};
  EXPECT_EQ(TreeSum(DType::kFloat32, inputs, {0, 1, 0, 2}, 1), std::vector<float>{2});
  EXPECT_EQ(TreeSum(DType::kFloat32, inputs, {0, 0, 2, 1}, 1), std::vector<float>{1});
  EXPECT_EQ(TreeSum(DType::kFloat32, inputs, {0, 1, 0, 2}, 4), std::vector<float>{0.5F});
  EXPECT_EQ(TreeSum<double>(DType::kFloat64, {{3}}, {0}, 2), std::vector<double>{1.5});
  EXPECT_EQ(TreeSum<std::complex<float>>(DType::kComplex64, {{{1, 2}}, {{3, 4}}}, {0, 1}, 2),
            (std::vector<std::complex<float>>{{2, 3}}));
}

TEST(TreeSum, SixteenBitFloatsAreRoundedAfterEachAddition) {
  // In bfloat16, 256 + 1 is 256, a tie to even; in float32 the two ones would make 258.
  const uint16_t k256 = 0x4380, kOne = 0x3f80;
  EXPECT_EQ(TreeSum<uint16_t>(DType::kBFloat16, {{k256}, {kOne}, {kOne}}, {0, 1, 1}, 1), std::vector<uint16_t>{k256});
  // In binary16, 2048 + 1 is 2048.
  EXPECT_EQ(TreeSum<uint16_t>(DType::kFloat16, {{0x6800}, {0x3c00}, {0x3c00}}, {0, 1, 1}, 1),
            std::vector<uint16_t>{0x6800});
}

TEST(TreeSum, IsTheSameOnEveryProcessorAndOfStoredSums) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    // The exponents of 16-bit numbers stay small, so that no sum is a NaN, which has several representations.
    const auto draw = [&]() -> uint32_t {
      return dtype == DType::kFloat32 ? random() & 0xbfffffff : random() & 0xbfffbfff;
    };
    const size_t words = 1000;
    std::vector<std::vector<uint32_t>> inputs(7, std::vector<uint32_t>(words));
    for (auto& input : inputs) {
      for (uint32_t& word : input) word = draw();
    }
    const std::vector<uint8_t> adds = {0, 1, 0, 2, 0, 1, 2};
    // Counted in elements of the dtype, of which two may be in a word.
    const auto sum = [&](const std::vector<std::vector<uint32_t>>& of, const std::vector<uint8_t>& order,
                         TreeSumFunction function) {
      std::vector<uint32_t> output(words);
      std::vector<const char*> from;
      for (const auto& input : of) from.push_back(reinterpret_cast<const char*>(input.data()));
      char* to = reinterpret_cast<char*>(output.data());
      function(&to, 1, from.data(), order.data(), static_cast<int>(from.size()), 4 * words / SizeOf(dtype), 1);
      return output;
    };
    const TreeSumFunction function = TreeSumFunctionFor(dtype), baseline = internal::BaselineTreeSum(dtype);
    const auto whole = sum(inputs, adds, function);
    EXPECT_EQ(whole, sum(inputs, adds, baseline)) << NameOf(dtype);
    const auto left = sum({inputs[0], inputs[1], inputs[2], inputs[3]}, {0, 1, 0, 2}, function);
    EXPECT_EQ(whole, sum({left, inputs[4], inputs[5], inputs[6]}, {0, 0, 1, 2}, function)) << NameOf(dtype);
  }
}

TEST(TreeSum, IsNotDefinedForIntegers) {
  for (const DType dtype : {DType::kBytes, DType::kBool, DType::kInt32}) EXPECT_EQ(TreeSumFunctionFor(dtype), nullptr);
}

}  // namespace
}  // namespace lockstep::comm::shm
