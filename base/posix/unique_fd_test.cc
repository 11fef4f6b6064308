#include "lockstep/base/posix/unique_fd.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

UniqueFd Null() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesItsDescriptorWhenItGoesOrTakesAnother) {
  UniqueFd fd = Null();
  const int first = fd.get();
  UniqueFd other = Null();
  const int second = other.get();
  fd = std::move(other);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(fd.get(), second);
  { const UniqueFd last = std::move(fd); }
  EXPECT_FALSE(IsOpen(second));
}

TEST(UniqueFd, ThatHasReleasedItsDescriptorDoesNotCloseIt) {
  UniqueFd fd = Null();
  const int released = fd.Release();
  EXPECT_FALSE(fd.valid());
  fd.Close();
  EXPECT_TRUE(IsOpen(released));
  const UniqueFd owner(released);
}

TEST(UniqueFd, ReturnsTheErrorOfCloseAndKeepsErrno) {
  UniqueFd fd = Null();
  const UniqueFd first_owner(fd.get());
  const int number = fd.get();
  EXPECT_EQ(fd.Close(), 0);
  UniqueFd second_owner(number);
  errno = ENOENT;
  EXPECT_EQ(second_owner.Close(), EBADF);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(second_owner.valid());
  EXPECT_EQ(second_owner.Close(), 0) << "there is nothing left to close";
}

TEST(AboveStdio, MovesADescriptorOutOfThePlaceOfStdin) {
  const UniqueFd stdin_copy(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  close(STDIN_FILENO);
  const UniqueFd fd = AboveStdio(Null());
  EXPECT_GT(fd.get(), STDERR_FILENO);
  EXPECT_EQ(fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(IsOpen(STDIN_FILENO));
  dup2(stdin_copy.get(), STDIN_FILENO);
}

TEST(AboveStdio, KeepsErrnoOfACallThatFailed) {
  EXPECT_FALSE(AboveStdio(UniqueFd(open("/none", O_RDONLY | O_CLOEXEC))).valid());
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace lockstep
