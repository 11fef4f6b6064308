#include "lockstep/base/posix/descriptors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

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

rlimit Limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

TEST(Descriptors, TheSoftLimitIsRaisedToTheHardOneOnlyIfItLeavesNoRoom) {
  const FewDescriptors few(3);
  const rlim_t low = Limit().rlim_cur;
  MakeRoomForDescriptors(3);
  EXPECT_EQ(Limit().rlim_cur, low);
  EXPECT_EQ(CheckFreeDescriptors(4).code(), absl::StatusCode::kResourceExhausted);
  MakeRoomForDescriptors(4);
  EXPECT_EQ(Limit().rlim_cur, Limit().rlim_max);
  EXPECT_EQ(CheckFreeDescriptors(4), absl::OkStatus());
}

TEST(DescriptorsDeathTest, TheErrorSaysIfTheHardLimitIsTheSame) {
  const auto exhaust = [] {
    const rlimit both = {64, 64};
    setrlimit(RLIMIT_NOFILE, &both);
    std::fprintf(stderr, "%s\n", std::string(DescriptorError("x", EMFILE).message()).c_str());
    _exit(0);
  };
  EXPECT_EXIT(exhaust(), ::testing::ExitedWithCode(0),
              "x: Too many open files .the soft and the hard limit of open files are 64 .RLIMIT_NOFILE");
}

}  // namespace
}  // namespace lockstep
