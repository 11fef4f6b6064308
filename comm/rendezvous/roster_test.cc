#include "lockstep/comm/rendezvous/roster.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::comm {
namespace {

Member OnHost(const std::string& host, int rank) {
  Member member;
  member.token = absl::StrCat("token", rank);
  member.identity.rank = rank;
  member.identity.host = host;
  member.identity.pid = 100 + rank;
  member.identity.start_time = uint64_t{1} << 60;
  member.identity.boot_id = absl::StrCat("boot of ", host);
  member.identity.pid_namespace = "pid:[1]";
  member.identity.network_namespace = "net:[2]";
  member.facts = "gloo,shm\n1:2";
  return member;
}

void ExpectSame(const Member& found, const Member& expected) {
  EXPECT_EQ(found.token, expected.token);
  EXPECT_EQ(EncodeIdentity(found.identity), EncodeIdentity(expected.identity));
  EXPECT_EQ(found.facts, expected.facts);
}

TEST(Member, IsReadAsItWasWritten) { ExpectSame(DecodeMember(EncodeMember(OnHost("a", 1))).value(), OnHost("a", 1)); }

TEST(Roster, IsReadAsItWasWritten) {
  Roster roster = {OnHost("a", 0), OnHost("b", 1), std::nullopt, OnHost("a", 3), OnHost("c", 4)};
  roster[3]->facts = "";
  roster[4]->identity.boot_id = "";
  const Roster found = DecodeRoster(EncodeRoster(roster)).value();
  ASSERT_EQ(found.size(), roster.size());
  EXPECT_FALSE(found[2]);
  for (const int rank : {0, 1, 3, 4}) ExpectSame(found[rank].value(), *roster[rank]);
}

TEST(Roster, OfALargeHostTakesFewBytesForEachRank) {
  Roster roster;
  for (int rank = 0; rank < 1000; ++rank) roster.push_back(OnHost("a host with a name of some length", rank));
  EXPECT_LT(EncodeRoster(roster).size(), 45 * roster.size());
}

TEST(Roster, ThatIsCutOrChangedIsRefused) {
  const std::string text = EncodeRoster({OnHost("a", 0), std::nullopt, OnHost("b", 2)});
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(DecodeRoster(text.substr(0, size)).ok()) << size;
  EXPECT_FALSE(DecodeRoster(text + "x").ok());
  for (const char* other : {"", "x", "99999999999999999999\n", "1\n9:x", "0\n0\n1\nt 1 1 0 0\n", "0\n0\n999999999\n"}) {
    EXPECT_FALSE(DecodeRoster(other).ok()) << other;
  }
}

}  // namespace
}  // namespace lockstep::comm
