#include "lockstep/models/transformer/matrix_flops.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex_lock.h"

namespace lockstep::models {
namespace {

double Measured(at::ScalarType dtype) {
  constexpr int64_t kSize = 1024;
  const at::Tensor a = at::ones({kSize, kSize}, dtype);
  absl::Duration best = absl::InfiniteDuration();
  for (const absl::Time end = absl::Now() + absl::Milliseconds(200); absl::Now() < end;) {
    const absl::Time start = absl::Now();
    at::mm(a, a);
    best = std::min(best, absl::Now() - start);
  }
  return 2.0 * kSize * kSize * kSize / absl::ToDoubleSeconds(best);
}

}  // namespace

double MatrixFlops(at::ScalarType dtype) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const measured = new std::map<at::ScalarType, double>;
  const MutexLock lock(mutex);
  const auto [flops, is_new] = measured->try_emplace(dtype);
  if (is_new) flops->second = Measured(dtype);
  return flops->second;
}

}  // namespace lockstep::models
