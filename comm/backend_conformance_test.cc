// The suite over ranks that are threads.

#include "lockstep/comm/testing/backend_conformance.h"

#include "gtest/gtest.h"

namespace lockstep::comm::testing {

INSTANTIATE_TEST_SUITE_P(Threads, BackendConformance, ::testing::Values(ConformanceCase{"threads"}));

}  // namespace lockstep::comm::testing
