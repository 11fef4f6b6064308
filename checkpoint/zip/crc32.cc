#include "lockstep/checkpoint/zip/crc32.h"

#include <zlib.h>

#include <utility>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace lockstep::checkpoint::zip {
namespace {

uint32_t ByTable(uint32_t crc, const void* from, size_t count) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(from), count));
}

#ifdef __x86_64__

// Folding: 128 bits of the message that stand n bits before others may be replaced by two carry-less products added to
// those, by x^(n+32) and x^(n-32) mod P, without changing the CRC (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009). Four registers are folded at a time, so that multiplications
// overlap.

// x^n mod P with its bits reversed, as the reversed message needs it; one place up, as a product of two reversed
// numbers comes out one place down.
constexpr uint64_t Power(int n) {
  uint32_t value = 0x80000000;  // 1
  for (int i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320 : 0);
  return uint64_t{value} << 1;
}

// The factors for folding over n bits: of the low half, which comes first in the message, and of the high one.
struct Factors {
  uint64_t low, high;
};
constexpr Factors Over(int bits) { return {Power(bits + 32), Power(bits - 32)}; }

constexpr Factors kOver128 = Over(128), kOver512 = Over(512), kOver2048 = Over(2048);
static_assert(kOver512.low == 0x154442bd4 && kOver512.high == 0x1c6e41596, "as in the paper");

#define LOCKSTEP_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define LOCKSTEP_AVX512 __attribute__((target("pclmul,sse4.1,avx512f,avx512bw,avx512vl,vpclmulqdq")))

LOCKSTEP_PCLMUL __m128i Set(const Factors& factors) {
  return _mm_set_epi64x(static_cast<int64_t>(factors.high), static_cast<int64_t>(factors.low));
}

LOCKSTEP_PCLMUL __m128i Load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

LOCKSTEP_PCLMUL __m128i Fold(__m128i value, __m128i factors, __m128i onto) {
  const __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

// Folds `four`, which stand one after another, and what whole 16 bytes follow them into one; its CRC, begun at zero, is
// that of the message.
LOCKSTEP_PCLMUL uint32_t Finish(const __m128i (&four)[4], const char* from, size_t count) {
  const __m128i factors = Set(kOver128);
  __m128i value = four[0];
  for (int i = 1; i < 4; ++i) value = Fold(value, factors, four[i]);
  for (; count >= 16; from += 16, count -= 16) value = Fold(value, factors, Load(from));
  alignas(16) char rest[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), value);
  // zlib inverts before and after: all ones begin at zero.
  return ByTable(ByTable(0xffffffff, rest, sizeof(rest)), from, count);
}

// Requires: count >= 64.
LOCKSTEP_PCLMUL uint32_t ByPclmul(uint32_t crc, const char* from, size_t count) {
  const __m128i factors = Set(kOver512);
  __m128i four[4];
  for (int i = 0; i < 4; ++i) four[i] = Load(from + 16 * i);
  four[0] = _mm_xor_si128(four[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  for (from += 64, count -= 64; count >= 64; from += 64, count -= 64) {
    for (int i = 0; i < 4; ++i) four[i] = Fold(four[i], factors, Load(from + 16 * i));
  }
  return Finish(four, from, count);
}

// By the masked form: GCC 12 warns of the plain one's own header.
LOCKSTEP_AVX512 __m512i Broadcast(const Factors& factors) { return _mm512_maskz_broadcast_i32x4(0xffff, Set(factors)); }

LOCKSTEP_AVX512 __m512i FoldWide(__m512i value, __m512i factors, __m512i onto) {
  const __m512i low = _mm512_clmulepi64_epi128(value, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(value, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, onto, 0x96);  // the three's exclusive or
}

// Requires: count >= 256.
LOCKSTEP_AVX512 uint32_t ByAvx512(uint32_t crc, const char* from, size_t count) {
  const __m512i factors = Broadcast(kOver2048);
  __m512i wide[4];
  for (int i = 0; i < 4; ++i) wide[i] = _mm512_loadu_si512(from + 64 * i);
  wide[0] = _mm512_xor_si512(wide[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  for (from += 256, count -= 256; count >= 256; from += 256, count -= 256) {
    for (int i = 0; i < 4; ++i) wide[i] = FoldWide(wide[i], factors, _mm512_loadu_si512(from + 64 * i));
  }
  const __m512i narrow = Broadcast(kOver512);
  for (int i = 1; i < 4; ++i) wide[i] = FoldWide(wide[i - 1], narrow, wide[i]);
  alignas(64) __m128i four[4];
  _mm512_store_si512(four, wide[3]);
  return Finish(four, from, count);
}

#undef LOCKSTEP_PCLMUL
#undef LOCKSTEP_AVX512

using Function = uint32_t (*)(uint32_t crc, const char* from, size_t count);

// The fastest for the processor, and the bytes it needs at least; no function where it has no such instruction.
std::pair<Function, size_t> Fastest() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("vpclmulqdq")) {
    return {&ByAvx512, 256};
  }
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) return {&ByPclmul, 64};
  return {nullptr, 0};
}

uint32_t Extend(uint32_t crc, const void* from, size_t count) {
  static const std::pair<Function, size_t> fastest = Fastest();
  const bool use = fastest.first && count >= fastest.second;
  return use ? fastest.first(crc, static_cast<const char*>(from), count) : ByTable(crc, from, count);
}

#else

uint32_t Extend(uint32_t crc, const void* from, size_t count) { return ByTable(crc, from, count); }

#endif

}  // namespace

uint32_t ExtendCrc32(uint32_t crc, const void* from, size_t count) { return Extend(crc, from, count); }

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t count) {
  return static_cast<uint32_t>(crc32_combine64(first, second, static_cast<int64_t>(count)));
}

}  // namespace lockstep::checkpoint::zip
