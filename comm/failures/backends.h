#ifndef LOCKSTEP_COMM_FAILURES_BACKENDS_H_
#define LOCKSTEP_COMM_FAILURES_BACKENDS_H_

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// The backends whose failures are caused and measured: each is linked into the tests of this folder (see BUILD).
inline std::vector<std::string> BackendsUnderTest() { return {"gloo"}; }

// A test that runs for each of them.
class FailureTest : public ::testing::TestWithParam<std::string> {
 protected:
  static InitOptions Options(absl::Duration timeout = absl::Seconds(20)) {
    InitOptions options;
    options.backend = GetParam();
    options.timeout = timeout;
    options.debug = Debug::kOff;
    return options;
  }
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FAILURES_BACKENDS_H_
