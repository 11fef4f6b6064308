// The storage format of each dtype, and the type in which it is computed. Each source that includes this compiles a
// separate copy, as explained in kernels.h.

#ifndef LOCKSTEP_COMM_SHM_INTERNAL_FORMATS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

// Set by kernels_avx2.cc. GCC 12's preprocessor does not see the effects of a target pragma.
#if defined(LOCKSTEP_SHM_AVX2)
#include <immintrin.h>
#endif

namespace lockstep::comm::shm::internal {
namespace {

inline uint32_t Bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// memcpy for results, which are rarely in a cache. x86's string instructions write whole cache lines without reading
// them first: all-reducing 25 MiB in place takes a fifth less time. GCC makes them of memcpy, and clang calls the C
// library. Sanitizers see a memcpy, as they do not look into assembly.
inline void CopyOut(char* to, const void* from, size_t bytes) {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr size_t kWorthIt = 512;  // they take some 30 cycles to start
  if (bytes >= kWorthIt) {
    size_t words = bytes / 8;
    asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    bytes %= 8;
  }
#endif
  memcpy(to, from, bytes);
}

// How an element is stored (Stored) and computed with (Value); kByElement: At() reads one, and the compiler vectorises.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static constexpr bool kByElement = true;
  static Value At(const char* from, size_t i) {
    T value;
    memcpy(&value, from + i * sizeof(T), sizeof(T));
    return value;
  }
  static void Load(Value* to, const char* from, size_t n) { memcpy(to, from, n * sizeof(T)); }
  static void Store(char* to, const Value* from, size_t n) { CopyOut(to, from, n * sizeof(T)); }
};

// To nearest even; NaN stays NaN.
inline uint16_t FloatToBrain(float value) {
  const uint32_t bits = Bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr bool kByElement = false;
  static void Load(Value* to, const char* from, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint16_t half;
      memcpy(&half, from + 2 * i, 2);
      to[i] = FromBits(uint32_t{half} << 16);
    }
  }
  static void Store(char* to, const Value* from, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t half = FloatToBrain(from[i]);
      memcpy(to + 2 * i, &half, 2);
    }
  }
};

// IEEE 754 binary16, without hardware.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31, fraction = half & 0x3ff;
  if (exponent == 31) return FromBits(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return FromBits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return FromBits(sign | Bits(magnitude));
}
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = Bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  if (magnitude < 0x38800000) {  // below 2^-14: a subnormal, whose unit is the last bit of 0.5f
    const uint32_t subnormal = Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f);
    return static_cast<uint16_t>(sign | subnormal);
  }
  const uint32_t rebased = magnitude - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
}

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr bool kByElement = false;  // eight at a time
  static void Load(Value* to, const char* from, size_t n) {
    size_t vectors = 0;
#if defined(LOCKSTEP_SHM_AVX2)
    vectors = n / 8 * 8;
    for (size_t i = 0; i < vectors; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
    }
#endif
    for (size_t i = vectors; i < n; ++i) {
      uint16_t half;
      memcpy(&half, from + 2 * i, 2);
      to[i] = HalfToFloat(half);
    }
  }
  static void Store(char* to, const Value* from, size_t n) {
    size_t vectors = 0;
#if defined(LOCKSTEP_SHM_AVX2)
    vectors = n / 8 * 8;
    for (size_t i = 0; i < vectors; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (size_t i = vectors; i < n; ++i) {
      const uint16_t half = FloatToHalf(from[i]);
      memcpy(to + 2 * i, &half, 2);
    }
  }
};

}  // namespace
}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_FORMATS_H_
