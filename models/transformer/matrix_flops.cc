#include "lockstep/models/transformer/matrix_flops.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep::models {
namespace {

double Measured() {
  constexpr int64_t kSize = 1024;
  const at::Tensor a = at::ones({kSize, kSize});
  absl::Duration best = absl::InfiniteDuration();
  for (const absl::Time end = absl::Now() + absl::Milliseconds(200); absl::Now() < end;) {
    const absl::Time start = absl::Now();
    at::mm(a, a);
    best = std::min(best, absl::Now() - start);
  }
  return 2.0 * kSize * kSize * kSize / absl::ToDoubleSeconds(best);
}

}  // namespace

double MatrixFlops() {
  static const double flops = Measured();
  return flops;
}

}  // namespace lockstep::models
