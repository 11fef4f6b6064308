#ifndef LOCKSTEP_COMM_FAILURES_BACKENDS_H_
#define LOCKSTEP_COMM_FAILURES_BACKENDS_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::comm {

// The backends under test. Each must be linked into the tests of this folder (see BUILD).
inline std::vector<std::string> BackendsUnderTest() { return {"gloo", "shm", "hierarchical"}; }

// Ranks over one of these backends, or over a test's backend whose name begins with one of theirs; on two hosts for the
// backend for several hosts.
class Ranks : public testing::RankProcesses {
 public:
  Ranks(int world_size, const InitOptions& options, const Body& body)
      : RankProcesses(world_size, options, body,
                      absl::StartsWith(options.backend, "hierarchical") ? &TwoHosts() : nullptr) {}

 private:
  static const testing::NetworkHosts& TwoHosts() {
    static const auto hosts = testing::NetworkHosts::Create(2);
    return **hosts;
  }
};

// A test that runs for each backend.
class FailureTest : public ::testing::TestWithParam<std::string> {
 protected:
  static InitOptions Options(absl::Duration timeout = absl::Seconds(20)) {
    InitOptions options;
    options.backend = GetParam();
    options.timeout = timeout;
    options.debug = Debug::kOff;
    return options;
  }

  // The world sizes to test. hierarchical needs a host with two ranks.
  static std::vector<int> Sizes() {
    return GetParam() == "hierarchical" ? std::vector<int>{3, 4} : std::vector<int>{2, 4};
  }
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FAILURES_BACKENDS_H_
