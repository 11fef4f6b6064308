#include "lockstep/launch/node/master_socket.h"

#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::ListenAt;

TEST(MasterSocket, NobodyElseListensWhereOneListens) {
  const auto loopback = ListenOnLoopback(), all = ListenOnAllAddresses();
  ASSERT_TRUE(loopback.ok() && all.ok());
  for (const int port : {loopback->port, all->port}) EXPECT_FALSE(ListenAt(port).valid()) << port;
}

TEST(HoldPort, LeavesThePortToOneWhoAsksForItAndToNobodyElse) {
  const auto held = HoldPort();
  ASSERT_TRUE(held.ok());
  // None of 1,000 free ports is the held one.
  for (int i = 0; i < 1000; ++i) ASSERT_NE(*FreePort(), held->port);
  const UniqueFd store = ListenAt(held->port);
  EXPECT_TRUE(store.valid());
  EXPECT_FALSE(ListenAt(held->port).valid()) << "another one listens there";
}

TEST(FreePort, IsFree) { EXPECT_TRUE(ListenAt(*FreePort()).valid()); }

}  // namespace
}  // namespace lockstep::launch
