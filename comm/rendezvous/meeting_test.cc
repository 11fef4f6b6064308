// Ranks are threads, over an in-process store unless the store itself is what fails.

#include "lockstep/comm/rendezvous/meeting.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"
#include "lockstep/comm/secret/sealed_store.h"
#include "lockstep/comm/store/internal/c10d_stores.h"

namespace lockstep::comm {
namespace {

using internal::C10dStore;
using ::lockstep::testing::FewDescriptors;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

C10dStore NewStore() { return c10::make_intrusive<c10d::HashStore>(); }

struct Rank {
  int rank, world_size;
};

std::vector<absl::StatusOr<Met>> MeetAll(const C10dStore& store, const std::vector<Rank>& ranks,
                                         absl::Duration timeout = absl::Seconds(20)) {
  std::vector<absl::StatusOr<Met>> met(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      met[i] = MeetAllRanks(store, ranks[i].rank, ranks[i].world_size, absl::StrCat("line\n", ranks[i].rank),
                            absl::Now() + timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return met;
}

std::string Text(const absl::StatusOr<Met>& met) { return met.ok() ? "OK" : std::string(met.status().message()); }

RankIdentity DeadProcess(int rank) {
  RankIdentity identity = IdentityOfThisProcess(rank);
  identity.start_time += 1;  // another process than the one that has the pid now
  return identity;
}

void PutMember(const C10dStore& store, const RankIdentity& identity) {
  store->set(absl::StrCat("lockstep/member/", identity.rank), absl::StrCat("token\n", EncodeIdentity(identity), "\n"));
}

TEST(MeetAllRanks, TellsEachRankWhoTheOthersAreAndTheirFacts) {
  const auto met = MeetAll(NewStore(), {{2, 3}, {0, 3}, {1, 3}});
  for (const auto& rank : met) {
    ASSERT_TRUE(rank.ok()) << rank.status();
    EXPECT_TRUE(rank->all_lockstep);
    EXPECT_THAT(rank->facts, ::testing::ElementsAre("line\n0", "line\n1", "line\n2"));
    ASSERT_EQ(rank->ranks.size(), 3);
    EXPECT_EQ(NameOf(rank->ranks[2]), NameOf(IdentityOfThisProcess(2)));
  }
}

TEST(MeetAllRanks, OfALargeWorldIsQuick) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 64; ++rank) ranks.push_back({rank, 64});
  for (const auto& rank : MeetAll(NewStore(), ranks)) EXPECT_TRUE(rank.ok()) << rank.status();
}

TEST(MeetAllRanks, ARankOutOfDescriptorsFailsAtOnceAndTellsTheOthers) {
  const std::string text =
      "rank 0 .host .*, pid [0-9]+.: opening 4 descriptors, of which [0-3] are free: Too many open files .the soft "
      "limit of open files is .*";
  for (const bool from_the_start : {true, false}) {
    const C10dStore store = NewStore();
    std::string found;
    {
      std::unique_ptr<FewDescriptors> few = from_the_start ? std::make_unique<FewDescriptors>(2) : nullptr;
      std::thread rank0([&] { found = Text(MeetAll(store, {{0, 2}})[0]); });
      if (!from_the_start) {
        store->wait({"lockstep/member/0"});
        few = std::make_unique<FewDescriptors>(2);
      }
      rank0.join();
    }
    EXPECT_THAT(found, MatchesRegex(text));
    EXPECT_EQ(Text(MeetAll(store, {{1, 2}})[0]), found);
  }
}

TEST(MeetAllRanks, APythonRankIsSeenByEveryLockstepRank) {
  const C10dStore store = NewStore();
  store->set("default_pg/0//cpu//0/1", "an address of Gloo");
  for (const auto& rank : MeetAll(store, {{0, 3}, {2, 3}})) {
    ASSERT_TRUE(rank.ok()) << rank.status();
    EXPECT_FALSE(rank->all_lockstep);
    EXPECT_TRUE(rank->ranks.empty());
    EXPECT_TRUE(rank->facts.empty());
  }
}

TEST(MeetAllRanks, ALockstepRankThatHasGoneOnToGlooIsNotAPythonRank) {
  const C10dStore store = NewStore();
  store->set("default_pg/0//cpu//0/0", "an address of Gloo");
  for (const auto& rank : MeetAll(store, {{0, 2}, {1, 2}})) {
    ASSERT_TRUE(rank.ok()) << rank.status();
    EXPECT_TRUE(rank->all_lockstep);
  }
}

TEST(MeetAllRanks, ADuplicateRankFailsEveryRankNamingBothProcesses) {
  int saw_it_first = 0;
  for (const auto& rank : MeetAll(NewStore(), {{0, 3}, {1, 3}, {1, 3}})) {
    EXPECT_THAT(Text(rank),
                MatchesRegex("rank 1: two processes were given this rank: host .+, pid [0-9]+ and host .+"));
    saw_it_first += rank.status().code() == absl::StatusCode::kAlreadyExists;
  }
  EXPECT_EQ(saw_it_first, 1);
}

TEST(MeetAllRanks, AnotherWorldSizeFailsEveryRankNamingBoth) {
  const C10dStore store = NewStore();
  RankIdentity first;
  first.rank = 1;
  first.host = "a";
  first.pid = 7;
  store->set("lockstep/world", absl::StrCat("2|token\n", EncodeIdentity(first), "\n"));
  for (const auto& rank : MeetAll(store, {{0, 3}, {2, 3}})) {
    EXPECT_THAT(Text(rank),
                MatchesRegex("rank [02] \\(host .+, pid [0-9]+\\) was given world size 3, but rank 1 \\(host "
                             "a, pid 7\\) world size 2"));
  }
}

TEST(MeetAllRanks, AWorldThatNeverFillsNamesTheMissingOnEveryRank) {
  const absl::Time start = absl::Now();
  for (const auto& rank : MeetAll(NewStore(), {{0, 4}, {2, 4}}, absl::Milliseconds(500))) {
    EXPECT_EQ(Text(rank), "these ranks have not joined: 1, 3");
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(MeetAllRanks, TheOneWhoseDeadlineComesFirstTellsTheOthers) {
  const C10dStore store = NewStore();
  std::thread patient([&] {
    const absl::Status status = MeetAllRanks(store, 0, 3, "", absl::Now() + absl::Minutes(5)).status();
    EXPECT_EQ(status, absl::DeadlineExceededError("these ranks have not joined: 2"));
  });
  while (!store->check({"lockstep/member/0"})) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(MeetAllRanks(store, 1, 3, "", absl::Now() + absl::Milliseconds(100)).status(),
            absl::DeadlineExceededError("these ranks have not joined: 2"));
  patient.join();
}

TEST(MeetAllRanks, AnInterruptionEndsItOnTheRanksThatAreThere) {
  const C10dStore store = NewStore();
  const auto is_interrupted = std::make_shared<std::atomic<bool>>(false);
  const auto interruption = [is_interrupted] {
    return *is_interrupted ? absl::CancelledError("rank 1 is dead") : absl::OkStatus();
  };
  const absl::Time start = absl::Now();
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2}) {
    ranks.emplace_back([&, rank] {
      EXPECT_EQ(MeetAllRanks(store, rank, 3, "", start + absl::Minutes(5), nullptr, interruption).status(),
                absl::CancelledError("rank 1 is dead"));
    });
  }
  while (!store->check({"lockstep/member/0", "lockstep/member/2"})) absl::SleepFor(absl::Milliseconds(1));
  *is_interrupted = true;
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST(MeetAllRanks, ARankThatDiedMeanwhileIsNamedAtOnce) {
  const C10dStore store = NewStore();
  PutMember(store, DeadProcess(1));
  const absl::Time start = absl::Now();
  const absl::Status status = MeetAllRanks(store, 0, 3, "", absl::Now() + absl::Minutes(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat(NameOf(DeadProcess(1)),
                                           " died while the ranks met, or is of an earlier run whose keys the "
                                           "in-process store still holds"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(MeetAllRanks, AFailureThatAnotherRankToldIsNotedForTheLauncherAsThatRanks) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/report");
  setenv("LOCKSTEP_ERROR_FILE", path.c_str(), /*overwrite=*/1);
  const C10dStore store = NewStore();
  store->set("lockstep/outcome", "14|rank 2 (host a, pid 7) exited with code 0");
  EXPECT_EQ(MeetAll(store, {{0, 3}})[0].status(), absl::AbortedError("rank 2 (host a, pid 7) exited with code 0"));
  unsetenv("LOCKSTEP_ERROR_FILE");
  std::stringstream noted;
  noted << std::ifstream(path).rdbuf();
  EXPECT_EQ(noted.str(), "\nLOCKSTEP1 heard rank 2 (host a, pid 7) exited with code 0\n");
}

TEST(MeetAllRanks, AStoreOfAnEarlierRunIsRefused) {
  const std::string path = ::testing::TempDir() + "/stale";
  const C10dStore store = internal::OpenFileStore(path, 2, absl::Seconds(5)).value();
  PutMember(store, DeadProcess(1));
  const absl::Status status = MeetAllRanks(store, 1, 2, "", absl::Now() + absl::Seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), absl::StrCat("the file store ", path, " still holds ", NameOf(DeadProcess(1)),
                                           " of an earlier run, which died: each run needs a new one"));
}

TEST(MeetAllRanks, AMemberThatIsNoneOfOursIsRefusedWithAShortExcerpt) {
  for (const size_t bytes : {7, 8 << 20}) {
    const C10dStore store = NewStore();
    store->set("lockstep/member/1", std::string(bytes, '\x07'));
    const std::string text = Text(MeetAllRanks(store, 0, 3, "", absl::Now() + absl::Seconds(20)));
    EXPECT_THAT(text, HasSubstr("\"lockstep/member/1\" does not hold a rank's announcement, but \"\\x07\\x07"));
    EXPECT_LT(text.size(), 1000);
  }
}

TEST(MeetAllRanks, AWorldSizeOrFailureOfManyMegabytesGivesAShortError) {
  for (const char* key : {"lockstep/world", "lockstep/outcome"}) {
    const C10dStore store = NewStore();
    store->set(key, "13|" + std::string(8 << 20, 'x'));
    const std::string text = Text(MeetAllRanks(store, 0, 3, "", absl::Now() + absl::Seconds(20)));
    EXPECT_THAT(text, HasSubstr("xxxx"));
    EXPECT_LT(text.size(), 5000) << key;
  }
}

TEST(MeetAllRanks, EachTimeIsAnotherOccasion) {
  const auto once = MeetAll(NewStore(), {{0, 2}, {1, 2}}), again = MeetAll(NewStore(), {{0, 2}, {1, 2}});
  EXPECT_EQ(once[0]->occasion, once[1]->occasion);
  EXPECT_NE(once[0]->occasion, again[0]->occasion);
}

// The following tests have a job secret. The test itself is the stranger.

constexpr char kOwn[] = "the secret of this job", kOther[] = "the secret of another job", kNone[] = "";

// The store as a rank sees it that has `secret`.
C10dStore As(const C10dStore& store, const std::string& secret) {
  return secret.empty() ? store : Sealed(store, JobSecret::FromText(secret).value());
}

// Ranks with these secrets, which come a moment apart in this order.
std::vector<absl::Status> MeetWith(const C10dStore& store, const std::vector<std::pair<int, std::string>>& ranks) {
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (const auto& [rank, secret] : ranks) {
    threads.emplace_back([&, rank = rank, secret = secret] {
      statuses[rank] =
          MeetAllRanks(As(store, secret), rank, statuses.size(), "", absl::Now() + absl::Minutes(5)).status();
    });
    absl::SleepFor(absl::Milliseconds(20));
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(MeetAllRanksWithASecret, ShowsTheRanksToEachOtherAndNothingToAStranger) {
  const C10dStore store = NewStore(), open = NewStore();
  for (const auto& status : MeetWith(store, {{0, kOwn}, {1, kOwn}, {2, kOwn}})) EXPECT_EQ(status, absl::OkStatus());
  for (const auto& status : MeetWith(open, {{0, kNone}, {1, kNone}, {2, kNone}})) EXPECT_EQ(status, absl::OkStatus());
  // A short host name alone may stand in a sealed text by chance.
  const std::string member = open->get_to_str("lockstep/member/0");
  const size_t host = member.find(IdentityOfThisProcess(0).host);
  ASSERT_NE(host, std::string::npos) << member;
  const std::string named = member.substr(host, 12);
  ASSERT_EQ(named.size(), 12) << member;
  for (const char* key : {"lockstep/world", "lockstep/member/0", "lockstep/outcome"}) {
    EXPECT_THAT(store->get_to_str(key), ::testing::Not(HasSubstr(named)));
    EXPECT_TRUE(IsSealed(store->get_to_str(key))) << key;
  }
}

TEST(MeetAllRanksWithASecret, RanksOfUnequalSecretsFailAtOnceAndNameEachOther) {
  const std::vector<std::vector<std::string>> unequal = {
      {kOther, kOwn, kOwn}, {kOwn, kOther, kOwn}, {kNone, kOwn, kOwn}, {kOwn, kNone, kOwn}};
  std::vector<std::thread> meetings;  // at the same time
  for (const auto& secrets : unequal) {
    meetings.emplace_back([&secrets] {
      const absl::Time start = absl::Now();
      for (const auto& status : MeetWith(NewStore(), {{0, secrets[0]}, {1, secrets[1]}, {2, secrets[2]}})) {
        EXPECT_THAT(status.message(), HasSubstr("this rank has another job secret than rank "));
        EXPECT_THAT(status.message(), HasSubstr("LOCKSTEP_JOB_SECRET must be the same on every rank, or set on none"));
      }
      EXPECT_LT(absl::Now() - start, absl::Seconds(2));
    });
  }
  for (std::thread& meeting : meetings) meeting.join();
}

TEST(MeetAllRanksWithASecret, AForgedFailureIsIgnored) {
  const C10dStore store = NewStore();
  store->set("lockstep/outcome", "13|the disk is on fire");
  for (const auto& status : MeetWith(store, {{0, kOwn}, {1, kOwn}})) EXPECT_EQ(status, absl::OkStatus());
}

TEST(MeetAllRanksWithASecret, AForgedFailureDoesNotHideTheTrueOne) {
  const C10dStore store = NewStore();
  store->set("lockstep/outcome", "13|the disk is on fire");
  std::thread patient([&] {
    const absl::Status status = MeetAllRanks(As(store, kOwn), 0, 3, "", absl::Now() + absl::Minutes(5)).status();
    EXPECT_EQ(status, absl::DeadlineExceededError("these ranks have not joined: 2"));
  });
  while (!store->check({"lockstep/member/0"})) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(MeetAllRanks(As(store, kOwn), 1, 3, "", absl::Now() + absl::Milliseconds(100)).status(),
            absl::DeadlineExceededError("these ranks have not joined: 2"));
  patient.join();
}

TEST(MeetAllRanksWithASecret, AForgedMemberOrWorldSizeJoinsNobody) {
  for (const char* key : {"lockstep/member/1", "lockstep/world"}) {
    const C10dStore store = NewStore();
    store->set(key, absl::StrCat("2|\n", EncodeIdentity(IdentityOfThisProcess(1)), "\n"));
    const absl::Time start = absl::Now();
    const absl::Status status = MeetAllRanks(As(store, kOwn), 0, 2, "", absl::Now() + absl::Minutes(5)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("\"", key, "\" was not written by a rank of this job")));
    EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  }
}

TEST(MeetAllRanks, TheFirstRankThatHasComeSaysWhichHaveNot) {
  const C10dStore store = NewStore();
  std::vector<std::vector<std::string>> lines(5);
  std::vector<std::thread> threads;
  for (const int rank : {3, 1}) {
    threads.emplace_back([&, rank] {
      const auto write = [&lines, rank](const std::string& line) { lines[rank].push_back(line); };
      const auto waiting = std::make_shared<WaitingNotice>(
          WaitingNoticeOptions{absl::StrCat("rank ", rank), absl::Seconds(20), absl::Milliseconds(150), write});
      EXPECT_FALSE(MeetAllRanks(store, rank, 5, "", absl::Now() + absl::Milliseconds(400), waiting).ok());
    });
    store->wait({absl::StrCat("lockstep/member/", rank)});
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_GE(lines[3].size(), 1);
  EXPECT_THAT(
      lines[3].back(),
      MatchesRegex("rank 3: waiting for ranks 0, 2, 4 \\(3 of 5\\) to come to the in-process store \\([0-9]+ms of "
                   "20 s\\): have they started, with the same address and world size\\?"));
  EXPECT_THAT(lines[1], ::testing::IsEmpty());
}

TEST(MeetAllRanks, AListOfAnEarlierMeetingIsNotTakenForThisOne) {
  const C10dStore earlier = NewStore(), store = NewStore();
  for (const auto& rank : MeetAll(earlier, {{0, 2}, {1, 2}})) ASSERT_TRUE(rank.ok()) << rank.status();
  store->set("lockstep/outcome", earlier->get("lockstep/outcome"));
  const auto met = MeetAll(store, {{0, 2}, {1, 2}});
  for (const auto& rank : met) EXPECT_TRUE(rank.ok()) << rank.status();
  EXPECT_EQ(met[0]->occasion, met[1]->occasion);
}

TEST(MeetAllRanks, ACollectorThatDiedIsNamedAtOnce) {
  const C10dStore store = NewStore();
  store->set("lockstep/world", absl::StrCat("3|token\n", EncodeIdentity(DeadProcess(1)), "\n"));
  const absl::Time start = absl::Now();
  const absl::Status status = MeetAllRanks(store, 0, 3, "", absl::Now() + absl::Minutes(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(NameOf(DeadProcess(1)), " died while the ranks met")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(MeetAllRanks, ACollectorThatPublishesNothingIsNamedAtTheDeadline) {
  const C10dStore store = NewStore();
  RankIdentity collector = IdentityOfThisProcess(1);
  store->set("lockstep/world", absl::StrCat("2|token\n", EncodeIdentity(collector), "\n"));
  PutMember(store, collector);
  EXPECT_EQ(Text(MeetAllRanks(store, 0, 2, "", absl::Now() + absl::Milliseconds(300))),
            absl::StrCat("all ranks have joined, but ", NameOf(collector), " has not published their list"));
}

}  // namespace
}  // namespace lockstep::comm
