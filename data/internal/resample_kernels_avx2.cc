#include "lockstep/data/internal/resample_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#define LOCKSTEP_AVX2 __attribute__((target("avx2")))
#define LOCKSTEP_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline

namespace lockstep::data::internal {
namespace {

constexpr int kGroup = ResampleTaps::kGroup;

LOCKSTEP_AVX2_INLINE __m128i Load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// A group's 16 bytes in both halves.
LOCKSTEP_AVX2_INLINE __m256i LoadTwice(const void* from) { return _mm256_broadcastsi128_si256(Load(from)); }

// Bytes of 16 for each half.
LOCKSTEP_AVX2_INLINE __m256i Halves(__m128i low, __m128i high) { return _mm256_set_m128i(high, low); }

// Sums of weighted pixels as their parts: eight 32-bit integers.
struct Sums {
  __m256i upper, lower;

  LOCKSTEP_AVX2_INLINE void Add(__m256i pixels, __m256i upper_weights, __m256i lower_weights) {
    upper = _mm256_add_epi32(upper, _mm256_madd_epi16(pixels, upper_weights));
    lower = _mm256_add_epi32(lower, _mm256_madd_epi16(pixels, lower_weights));
  }

  LOCKSTEP_AVX2_INLINE __m256i Total() const {
    return _mm256_add_epi32(_mm256_slli_epi32(upper, ResampleTaps::kLowerBits), lower);
  }
};

LOCKSTEP_AVX2_INLINE __m256i Rounded(__m256i sums) {
  const __m256i half = _mm256_set1_epi32(1 << (ResampleTaps::kWeightBits - 1));
  return _mm256_srai_epi32(_mm256_add_epi32(sums, half), ResampleTaps::kWeightBits);
}

// One pixel: the sums of red, green, blue (and nothing) over the even pairs of taps, then the same over the odd ones.
// kGroups is `groups`, or 0 if it is not a compile-time constant.
template <int kGroups>
LOCKSTEP_AVX2_INLINE __m256i PixelSums(const uint8_t* pixels, const int16_t* weights, int64_t groups) {
  const __m256i pairs = Halves(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1),
                               _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m256i upper = Halves(_mm_set1_epi32(0x03020100), _mm_set1_epi32(0x07060504));
  const __m256i lower = Halves(_mm_set1_epi32(0x0b0a0908), _mm_set1_epi32(0x0f0e0d0c));
  Sums sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int64_t i = 0; i < (kGroups == 0 ? groups : kGroups); ++i) {
    const __m256i both = LoadTwice(weights + i * 2 * kGroup);
    sums.Add(_mm256_shuffle_epi8(LoadTwice(pixels + i * 3 * kGroup), pairs), _mm256_shuffle_epi8(both, upper),
             _mm256_shuffle_epi8(both, lower));
  }
  return sums.Total();
}

// Four bytes each of two pixels, as 32 bits.
LOCKSTEP_AVX2_INLINE __m256i TwoPixels(__m256i first, __m256i second) {
  return Rounded(
      _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31)));
}

// Bytes: four each of pixels 0, 1, 2 and 3.
LOCKSTEP_AVX2_INLINE __m128i FourPixels(__m256i zero_one, __m256i two_three) {
  const __m256i words = _mm256_packs_epi32(zero_one, two_three);
  const __m256i bytes = _mm256_packus_epi16(words, words);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

LOCKSTEP_AVX2_INLINE void Store4(int value, uint8_t* out) { std::memcpy(out, &value, 4); }

LOCKSTEP_AVX2_INLINE void StorePlanar(__m128i pixels, int64_t plane_stride, uint8_t* out) {
  const __m128i planes =
      _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, -1, -1, -1, -1));
  Store4(_mm_extract_epi32(planes, 0), out);
  Store4(_mm_extract_epi32(planes, 1), out + plane_stride);
  Store4(_mm_extract_epi32(planes, 2), out + 2 * plane_stride);
}

LOCKSTEP_AVX2_INLINE void StoreWhole(__m128i pixels, uint8_t* out) {
  const __m128i shuffle = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(pixels, shuffle));
}

template <int kGroups>
LOCKSTEP_AVX2 void HorizontalOf(const uint8_t* row, const ResampleTaps& taps, int64_t plane_stride, uint8_t* out) {
  const int64_t size = taps.spans.size();
  for (int64_t i = 0; i < size; i += 4) {
    __m256i sums[4];
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t pixel = std::min(i + j, size - 1);
      sums[j] = PixelSums<kGroups>(row + taps.spans[pixel].first * 3, taps.weights_of(pixel), taps.groups);
    }
    const __m128i pixels = FourPixels(TwoPixels(sums[0], sums[1]), TwoPixels(sums[2], sums[3]));
    if (plane_stride == 0) {
      StoreWhole(pixels, out + i * 3);
    } else {
      StorePlanar(pixels, plane_stride, out + i);
    }
  }
}

LOCKSTEP_AVX2 void Horizontal(const uint8_t* row, const ResampleTaps& taps, int64_t plane_stride, uint8_t* out) {
  if (taps.groups == 1) return HorizontalOf<1>(row, taps, plane_stride, out);
  if (taps.groups == 2) return HorizontalOf<2>(row, taps, plane_stride, out);
  return HorizontalOf<0>(row, taps, plane_stride, out);
}

LOCKSTEP_AVX2_INLINE __m256i Pair(const int16_t* weights) {
  int32_t pair;
  std::memcpy(&pair, weights, sizeof(pair));
  return _mm256_set1_epi32(pair);
}

LOCKSTEP_AVX2 void Vertical(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t size,
                            uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t i = 0; i < size; i += 16) {
    Sums first = {zero, zero}, second = {zero, zero};
    for (int64_t tap = 0; tap < count; tap += 2) {
      const int16_t* const pair = weights + tap / kGroup * 2 * kGroup + tap % kGroup;
      const __m256i upper = Pair(pair), lower = Pair(pair + kGroup);
      const __m128i a = Load(rows[tap] + i), b = Load(rows[tap + 1] + i);
      first.Add(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)), upper, lower);
      second.Add(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b)), upper, lower);
    }
    const __m256i words = _mm256_packs_epi32(Rounded(first.Total()), Rounded(second.Total()));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }
}

// Divides like the portable kernel. A product with the inverse would differ in the last bit.
LOCKSTEP_AVX2 void Normalize(const uint8_t* in, const float* mean, const float* std, int64_t size, float* out) {
  int64_t i = 0, phase = 0;
  for (; i + 8 <= size; i += 8, phase = phase == 16 ? 0 : phase + 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + i));
    const __m256 unit = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_set1_ps(255.0f));
    const __m256 centered = _mm256_sub_ps(unit, _mm256_loadu_ps(mean + phase));
    _mm256_storeu_ps(out + i, _mm256_div_ps(centered, _mm256_loadu_ps(std + phase)));
  }
  PortableResampleKernels().normalize(in + i, mean + phase, std + phase, size - i, out + i);
}

}  // namespace

const ResampleKernels* Avx2ResampleKernels() {
  static constexpr ResampleKernels kKernels = {Horizontal, Vertical, Normalize};
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace lockstep::data::internal

#else

namespace lockstep::data::internal {

const ResampleKernels* Avx2ResampleKernels() { return nullptr; }

}  // namespace lockstep::data::internal

#endif
