// One suite of tests about failures that every backend must pass: ranks are processes, which are killed, stopped, end
// early, throw, or call different things; the others' errors and how soon they come are looked at.
//
//   INSTANTIATE_TEST_SUITE_P(Shm, BackendFailures, ::testing::Values(FailureCase{"shm"}));
//
// in a test of its own (it forks, so nothing in its process may have started a thread) that depends on
// //comm/testing:failure_conformance and on the backend, with tags = ["exclusive"].

#ifndef LOCKSTEP_COMM_TESTING_FAILURE_CONFORMANCE_H_
#define LOCKSTEP_COMM_TESTING_FAILURE_CONFORMANCE_H_

#include <string>

#include "gtest/gtest.h"

namespace lockstep::comm::testing {

struct FailureCase {
  std::string backend;  // as in InitOptions::backend
};

class BackendFailures : public ::testing::TestWithParam<FailureCase> {};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_FAILURE_CONFORMANCE_H_
