#include "lockstep/tools/launch/agent_link/internal/link_message.h"

#include <sys/socket.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace lockstep::launch::internal {
namespace {

TEST(LinkMessage, LastWordsAreReadAlthoughTheOtherEndWasClosedWithUnreadPackets) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd launcher(ends[0]), rank(ends[1]);
  RankMessage finished;
  finished.kind = RankMessage::Kind::kFinished;
  ASSERT_TRUE(SendPacket(rank.get(), Encode(finished)).ok());
  ASSERT_TRUE(SendPacket(launcher.get(), Encode(LauncherMessage())).ok());
  rank.Close();
  const absl::StatusOr<Packet> packet = ReceivePacket(launcher.get());
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(packet->text, "finished");
  EXPECT_TRUE(absl::IsUnavailable(ReceivePacket(launcher.get()).status()));
}

TEST(LinkMessage, SurvivesItsEncoding) {
  RankMessage ready;
  ready.left = 3;
  ready.join.min_ranks = 2;
  ready.join.reason = "sample 7 is broken";
  RankMessage end;
  end.kind = RankMessage::Kind::kEndsJob;
  end.join.reason = "sample 7 is broken";
  RankMessage stays;
  stays.kind = RankMessage::Kind::kStays;
  RankMessage stalls;
  stalls.kind = RankMessage::Kind::kStalls;
  stalls.step = -1;
  stalls.join.reason = "barrier #7 has lasted 30s: every rank has begun it";
  for (const RankMessage& message : {ready, end, stays, stalls}) {
    const absl::StatusOr<RankMessage> decoded = DecodeRankMessage(Encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->kind, message.kind);
    EXPECT_EQ(decoded->left, message.left);
    EXPECT_EQ(decoded->step, message.step);
    EXPECT_EQ(decoded->join.reason, message.join.reason);
  }
}

}  // namespace
}  // namespace lockstep::launch::internal
