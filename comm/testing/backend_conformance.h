// Tests that every backend must pass: each collective, reduction and dtype, with 1 to 4 ranks.
//
//   INSTANTIATE_TEST_SUITE_P(Shm, BackendConformance, ::testing::Values(ConformanceCase{"shm"}));
//
// Use this in a test that depends on //comm/testing:backend_conformance and on the backend. For each dtype, the backend
// must give the right result or return Unimplemented on every rank.

#ifndef LOCKSTEP_COMM_TESTING_BACKEND_CONFORMANCE_H_
#define LOCKSTEP_COMM_TESTING_BACKEND_CONFORMANCE_H_

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::testing {

struct ConformanceCase {
  std::string backend;  // as in InitOptions::backend
  int max_ranks = 4;
};

class BackendConformance : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  // Runs body(group) on `ranks` threads of this process, one for each rank. Expects that none throws or fails to meet.
  void OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) const;

  // Calls OnRanks() for 1, 2, 3, ... ranks.
  void ForEachSize(const std::function<void(ProcessGroup& group)>& body) const;
};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_BACKEND_CONFORMANCE_H_
