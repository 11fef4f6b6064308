#include "lockstep/base/logging.h"

// After, so that the test shows that the order does not matter.
#include <ATen/core/Tensor.h>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Logging, LogAndCheckAreGlogs) {
  testing::internal::CaptureStderr();
  LOG(WARNING) << "rank 3 is late";
  const std::string line = testing::internal::GetCapturedStderr();
  // glog's prefix: severity, date, time, thread, file:line]
  EXPECT_NE(line.find("logging_test.cc:"), std::string::npos) << line;
  EXPECT_NE(line.find("] rank 3 is late"), std::string::npos) << line;
  EXPECT_EQ(line[0], 'W');
}

TEST(Logging, CheckEndsTheProcessSayingWhy) { EXPECT_DEATH(CHECK_EQ(1 + 1, 3), "Check failed: 1 \\+ 1 == 3"); }

}  // namespace
}  // namespace lockstep
