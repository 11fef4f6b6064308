#include "lockstep/tools/launch/internal/master_socket.h"

#include <unistd.h>

#include "gtest/gtest.h"
#include "lockstep/tools/launch/testing/processes.h"

namespace lockstep::launch::internal {
namespace {

using testing::ListenAt;

TEST(MasterSocket, NobodyElseListensWhereOneListens) {
  const auto loopback = ListenOnLoopback(), all = ListenOnAllAddresses();
  ASSERT_TRUE(loopback.ok() && all.ok());
  for (const int port : {loopback->port, all->port}) EXPECT_LT(ListenAt(port), 0) << port;
}

TEST(HoldPort, LeavesThePortToOneWhoAsksForItAndToNobodyElse) {
  const auto held = HoldPort();
  ASSERT_TRUE(held.ok());
  // Of 1,000 free ports none is the held one.
  for (int i = 0; i < 1000; ++i) ASSERT_NE(*FreePort(), held->port);
  const int store = ListenAt(held->port);
  EXPECT_GE(store, 0);
  EXPECT_LT(ListenAt(held->port), 0) << "another one listens there";
  close(store);
}

TEST(FreePort, IsFree) {
  const int fd = ListenAt(*FreePort());
  EXPECT_GE(fd, 0);
  close(fd);
}

}  // namespace
}  // namespace lockstep::launch::internal
