#include "lockstep/base/descriptors.h"

#include <sys/resource.h>

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"

namespace lockstep {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::testing::HasSubstr;

TEST(Descriptors, TheErrorNamesTheLimitAndHowToRaiseIt) {
  const FewDescriptors few(0);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const absl::Status status = DescriptorError("accepting connection 3 of 7", EMFILE);
  EXPECT_EQ(status, absl::ResourceExhaustedError("accepting connection 3 of 7: Too many open files (the soft limit of "
                                                 "open files is " +
                                                 std::to_string(limit.rlim_cur) +
                                                 " (RLIMIT_NOFILE); raise it with ulimit -n)"));
  EXPECT_THAT(std::string(DescriptorError("x", ENFILE).message()), HasSubstr("/proc/sys/fs/file-max"));
}

TEST(Descriptors, AnotherErrorKeepsItsCodeAndHasNoLimit) {
  EXPECT_EQ(DescriptorError("x", ECONNREFUSED), absl::UnavailableError("x: Connection refused"));
  EXPECT_EQ(DescriptorError("x", EINVAL, absl::StatusCode::kInternal), absl::InternalError("x: Invalid argument"));
}

TEST(Descriptors, ThoseThatAreFreeAreCountedAndStayFree) {
  const FewDescriptors few(3);
  EXPECT_EQ(CheckFreeDescriptors(3), absl::OkStatus());
  EXPECT_EQ(CheckFreeDescriptors(3), absl::OkStatus());
  EXPECT_THAT(std::string(CheckFreeDescriptors(4).message()),
              HasSubstr("opening 4 descriptors, of which 3 are free: Too many open files"));
}

}  // namespace
}  // namespace lockstep
