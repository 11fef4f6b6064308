#include "lockstep/launch/job/failure.h"

namespace lockstep::launch {

std::tuple<bool, bool, int64_t> CauseOrder(bool consequence, bool killed, int64_t time_ns) {
  return {consequence, !killed, time_ns};
}

bool Before(const Failure& a, const Failure& b) {
  return CauseOrder(a.consequence, a.killed, a.time_ns) < CauseOrder(b.consequence, b.killed, b.time_ns);
}

}  // namespace lockstep::launch
