#include "lockstep/launch/job/early_deaths.h"

namespace lockstep::launch {

bool EarlyDeaths::Hold(int slot, const Failure& failure, int64_t lived_ns, int64_t now_ns) {
  if (!failure.killed || lived_ns > absl::ToInt64Nanoseconds(kLoading)) return false;
  if (deaths_.empty()) until_ns_ = After(now_ns, kPatience);
  deaths_.push_back({slot, failure});
  return true;
}

std::vector<EarlyDeaths::Death> EarlyDeaths::Take(bool stays, bool others_run, int64_t now_ns) {
  if (!stays && others_run && now_ns < until_ns_) return {};
  return std::exchange(deaths_, {});
}

}  // namespace lockstep::launch
