#include "lockstep/launch/link/link_message.h"

#include <sys/socket.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
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
  EXPECT_EQ(packet->text, Encode(finished));
  EXPECT_TRUE(absl::IsUnavailable(ReceivePacket(launcher.get()).status()));
}

TEST(LinkMessage, SurvivesItsEncoding) {
  RankMessage ready;
  ready.left = 3;
  ready.join.min_ranks = 2;
  ready.join.reason = "sample 7 is broken";
  ready.join.silent_hosts = {"10.0.0.3", "fd00::7"};
  RankMessage end;
  end.kind = RankMessage::Kind::kEndsJob;
  end.join.reason = "sample 7 is broken";
  RankMessage stays;
  stays.kind = RankMessage::Kind::kStays;
  RankMessage stalls;
  stalls.kind = RankMessage::Kind::kStalls;
  stalls.step = -1;
  stalls.join.reason = "barrier #7 has lasted 30s: every rank has begun it";
  RankMessage unfit;
  unfit.kind = RankMessage::Kind::kUnfit;
  RankMessage fails;
  fails.kind = RankMessage::Kind::kFails;
  fails.join.failure = StepFailure{30, -1, "it is not finite: 7 8"};
  for (const RankMessage& message : {ready, end, stays, stalls, unfit, fails}) {
    const absl::StatusOr<RankMessage> decoded = DecodeRankMessage(Encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->kind, message.kind);
    EXPECT_EQ(decoded->left, message.left);
    EXPECT_EQ(decoded->step, message.step);
    EXPECT_EQ(decoded->join.reason, message.join.reason);
    EXPECT_EQ(decoded->join.silent_hosts, message.join.silent_hosts);
    EXPECT_EQ(decoded->join.leave_timeout, message.join.leave_timeout);
    ASSERT_EQ(decoded->join.failure.has_value(), message.join.failure.has_value());
    if (!message.join.failure) continue;
    EXPECT_EQ(decoded->join.failure->rank, -1);
    EXPECT_EQ(decoded->join.failure->step, 30);
    EXPECT_EQ(decoded->join.failure->cause, "it is not finite: 7 8");
  }
}

TEST(LinkMessage, OfALauncherSurvivesItsEncoding) {
  LauncherMessage message;
  message.generation.number = 7;
  message.generation.world_size = 3;
  message.generation.master_addr = "fd00::7";
  message.generation.regroups = false;
  message.generation.reason = "rank 1 left generation 6: full";
  message.generation.failure = StepFailure{30, 1, "full"};
  const absl::StatusOr<LauncherMessage> decoded = DecodeLauncherMessage(Encode(message));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const RankGeneration& generation = decoded->generation;
  EXPECT_EQ(generation.number, 7);
  EXPECT_EQ(generation.world_size, 3);
  EXPECT_EQ(generation.master_addr, "fd00::7");
  EXPECT_FALSE(generation.regroups);
  EXPECT_EQ(generation.reason, message.generation.reason);
  ASSERT_TRUE(generation.failure);
  EXPECT_EQ(generation.failure->cause, "full");
}

// Whatever the texts are, a packet has room for the message.
TEST(LinkMessage, HasItsSentencesCut) {
  RankMessage ready;
  ready.join.reason = std::string(100000, 'r');
  ready.join.failure = StepFailure{30, 1, std::string(100000, 'c')};
  ready.join.silent_hosts.assign(1000, "2001:0db8:85a3:0000:0000:8a2e:0370:7334");
  const std::string text = Encode(ready);
  EXPECT_LE(text.size(), kMostLinkBytes);
  const absl::StatusOr<RankMessage> decoded = DecodeRankMessage(text);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->join.reason, std::string(decoded->join.reason.size(), 'r'));
  EXPECT_EQ(decoded->join.silent_hosts.size(), 16u);
}

TEST(LinkMessage, IsRefusedUnlessItIsOne) {
  const std::string text = Encode(RankMessage());
  for (const std::string& other :
       {std::string(), std::string("ready"), text + " ", text.substr(0, text.size() - 1), "9" + text,
        "-1" + text.substr(1), "4294967297" + text.substr(1), text.substr(0, text.size() / 2) + "x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeRankMessage(other).status())) << other;
  }
}

}  // namespace
}  // namespace lockstep::launch
