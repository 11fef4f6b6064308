#include "lockstep/comm/internal/sigpipe.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::internal {
namespace {

// The errno of a write that nobody can read.
int WriteToNobody() {
  int ends[2];
  if (pipe(ends) != 0) return errno;
  const UniqueFd write_end(ends[1]);
  UniqueFd(ends[0]).Close();
  return write(write_end.get(), "x", 1) < 0 ? errno : 0;
}

bool IsBlocked() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, SIGPIPE) == 1;
}

TEST(BlockSigpipe, LetsAWriteFailWithAnErrorAndRestoresTheMask) {
  {
    const BlockSigpipe block;
    EXPECT_EQ(WriteToNobody(), EPIPE);
    EXPECT_TRUE(IsBlocked());
  }
  EXPECT_FALSE(IsBlocked());
}

TEST(BlockSigpipe, IsInheritedByTheThreadsThatStartUnderIt) {
  int error = 0;
  std::thread thread;
  {
    const BlockSigpipe block;
    thread = std::thread([&error] { error = WriteToNobody(); });
  }
  thread.join();
  EXPECT_EQ(error, EPIPE);
}

TEST(BlockSigpipe, NestsAndLeavesAnOuterBlockAlone) {
  const BlockSigpipe outer;
  { const BlockSigpipe inner; }
  EXPECT_TRUE(IsBlocked());
  EXPECT_EQ(WriteToNobody(), EPIPE);
}

TEST(BlockSigpipeDeathTest, WithoutItTheProcessDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(WriteToNobody(), ::testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace lockstep::comm::internal
