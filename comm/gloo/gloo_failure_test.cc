// The suite of failures over Gloo.

#include "gtest/gtest.h"
#include "lockstep/comm/testing/failure_conformance.h"

namespace lockstep::comm::testing {

INSTANTIATE_TEST_SUITE_P(Gloo, BackendFailures, ::testing::Values(FailureCase{"gloo"}));

}  // namespace lockstep::comm::testing
