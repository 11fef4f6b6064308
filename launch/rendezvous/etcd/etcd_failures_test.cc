#include <stdint.h>
#include <sys/eventfd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"
#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
#include "lockstep/launch/rendezvous/etcd/etcd_session.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_job.h"
#include "lockstep/launch/rendezvous/shared_view.h"
#include "lockstep/launch/testing/rendezvous_job.h"

namespace lockstep::launch::etcd {
namespace {

using Agent = std::unique_ptr<Rendezvous>;
using launch::testing::AwaitDecision;
using launch::testing::AwaitError;
using launch::testing::AwaitLead;
using launch::testing::AwaitTexts;
using launch::testing::Texts;
using testing::EtcdCluster;
using testing::EtcdClusterOptions;
using testing::JoinAs;
using testing::NewJobOptions;

std::unique_ptr<EtcdCluster> StartCluster(const EtcdClusterOptions& options = {}) {
  auto cluster = EtcdCluster::Start(options);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

// Sends requests with `start`, whose argument is what to call with each reply, until `count` replies have come.
template <typename Reply>
std::vector<absl::StatusOr<Reply>> Replies(EtcdClient* client, int count,
                                           const std::function<void(EtcdClient::On<Reply>)>& start) {
  std::vector<absl::StatusOr<Reply>> replies;
  const UniqueFd never(eventfd(0, EFD_CLOEXEC));
  start([&replies](absl::StatusOr<Reply> reply) { replies.push_back(std::move(reply)); });
  const absl::Time deadline = absl::Now() + launch::testing::kRendezvousLimit;
  while (replies.size() < count && absl::Now() < deadline) {
    EXPECT_EQ(client->Poll(never.get(), absl::Seconds(1)), absl::OkStatus());
  }
  client->CancelAll();
  replies.resize(count, absl::DeadlineExceededError("no reply"));
  return replies;
}

int64_t PutAndGetRevision(EtcdClient* client, const std::string& key, const std::string& value) {
  Transaction put;
  put.success = {{Operation::Kind::kPut, key, value}};
  const auto execute = [&](auto on_reply) { client->Execute(put, on_reply); };
  return Replies<TransactionReply>(client, 1, execute)[0].value_or(TransactionReply{false, -1, {}}).revision;
}

// Two agents of which one leads go on after `harm` was done to the member that leads etcd.
void ExpectTheJobGoesOn(const std::function<void(EtcdCluster* cluster, int leader)>& harm) {
  const auto cluster = StartCluster();
  ASSERT_TRUE(cluster);
  EtcdOptions options = NewJobOptions(*cluster);
  options.ttl = absl::Seconds(5);
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  const Agent b = JoinAs(options, "b");
  b->Post("before");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "before"}}).size(), 1);
  const absl::StatusOr<int> leader = cluster->Leader();
  ASSERT_TRUE(leader.ok()) << leader.status();
  harm(cluster.get(), *leader);
  b->Post("after");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "after"}}), (Texts{{"b", "after"}})) << a->Look().status << b->Look().status;
  a->Decide("go");
  EXPECT_EQ(AwaitDecision(b.get(), "go"), "go");
}

TEST(EtcdFailures, TheJobGoesOnWhenEtcdsLeaderIsKilled) {
  ExpectTheJobGoesOn([](EtcdCluster* cluster, int leader) { cluster->Kill(leader); });
}

TEST(EtcdFailures, TheJobGoesOnWhenEtcdsLeaderNoLongerAnswers) {
  ExpectTheJobGoesOn([](EtcdCluster* cluster, int leader) { cluster->Stop(leader); });
}

TEST(EtcdFailures, WithoutAMajorityOfMembersTheStatusIsUnavailableAfterTheTimeout) {
  const auto cluster = StartCluster();
  ASSERT_TRUE(cluster);
  EtcdOptions options = NewJobOptions(*cluster);
  options.timeout = absl::Seconds(4);
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  cluster->Kill(0);
  cluster->Kill(2);
  const absl::Status status = AwaitError(a.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  for (const std::string& endpoint : cluster->endpoints()) {
    EXPECT_TRUE(absl::StrContains(status.message(), endpoint)) << status;
  }
  EXPECT_TRUE(absl::StrContains(status.message(), "did not succeed for 4s")) << status;
  EXPECT_FALSE(a->Look().leads);
  a->Leave(absl::Seconds(20));
}

TEST(EtcdFailures, AMemberThatWasDownAndCompactedIsReadAgain) {
  const auto cluster = StartCluster();
  ASSERT_TRUE(cluster);
  EtcdOptions options = NewJobOptions(*cluster);
  options.ttl = absl::Seconds(5);
  EtcdOptions options_of_b = options;
  options.endpoints.erase(options.endpoints.begin());
  options_of_b.endpoints.resize(1);
  const Agent a = JoinAs(options, "a");
  ASSERT_TRUE(AwaitLead(a.get()));
  const Agent b = JoinAs(options_of_b, "b");
  a->Decide("before");
  ASSERT_EQ(AwaitDecision(b.get(), "before"), "before");
  cluster->Kill(0);
  a->Decide("after");
  ASSERT_EQ(AwaitDecision(a.get(), "after"), "after");
  EtcdClientOptions client_options;
  client_options.endpoints = options.endpoints;
  const auto client = EtcdClient::Create(client_options).value();
  const int64_t revision = PutAndGetRevision(client.get(), "/other", "value");
  ASSERT_TRUE(cluster->Call(1, "kv/compaction", absl::StrCat(R"({"revision": ")", revision, R"("})")).ok());
  ASSERT_EQ(cluster->Restart(0), absl::OkStatus());
  EXPECT_EQ(AwaitDecision(b.get(), "after"), "after");
}

// The agent has not heard yet that its lease is gone and that another one leads.
TEST(EtcdFailures, TheDecisionOfAnAgentThatHasLostTheLeadHasNoEffect) {
  EtcdClusterOptions cluster_options;
  cluster_options.members = 1;
  const auto cluster = StartCluster(cluster_options);
  ASSERT_TRUE(cluster);
  EtcdOptions options = NewJobOptions(*cluster);
  options.agent_id = "old";
  options.ttl = absl::Seconds(20);
  EtcdClientOptions client_options;
  client_options.endpoints = cluster->endpoints();
  const auto view = SharedView::Create().value();
  EtcdSession old(options, EtcdClient::Create(client_options).value(), view.get());
  const UniqueFd never(eventfd(0, EFD_CLOEXEC));
  const auto drive = [&](const std::function<bool()>& condition, absl::Duration limit) {
    for (const absl::Time end = absl::Now() + limit; !condition() && absl::Now() < end; old.Wait(never.get()))
      old.Step();
    return condition();
  };
  ASSERT_TRUE(drive([&] { return view->Look().leads; }, launch::testing::kRendezvousLimit));

  const auto client = EtcdClient::Create(client_options).value();
  const std::string leader_key = absl::StrCat("/lockstep/launch/", options.job_id, "/leader");
  const auto leader =
      Replies<RangeReply>(client.get(), 1, [&](auto on_reply) { client->Range(leader_key, "", on_reply); })[0];
  ASSERT_EQ(leader->kvs.size(), 1);
  const int64_t lease = leader->kvs[0].lease;
  ASSERT_TRUE(Replies<int64_t>(client.get(), 1, [&](auto on_reply) { client->RevokeLease(lease, on_reply); })[0].ok());
  const Agent next = JoinAs(options, "next");
  ASSERT_TRUE(AwaitLead(next.get()));
  next->Decide("next");
  ASSERT_EQ(AwaitDecision(next.get(), "next"), "next");

  old.Decide("old");
  EXPECT_TRUE(drive([&] { return view->Look().decision == "next"; }, launch::testing::kRendezvousLimit));
  EXPECT_FALSE(drive([&] { return next->Look().decision != "next"; }, absl::Seconds(1)));
}

TEST(EtcdClient, AWatchReportsChangesAndWhatIsCompactedIsOutOfRange) {
  EtcdClusterOptions cluster_options;
  cluster_options.members = 1;
  const auto cluster = StartCluster(cluster_options);
  ASSERT_TRUE(cluster);
  EtcdClientOptions options;
  options.endpoints = cluster->endpoints();
  const auto client = EtcdClient::Create(options).value();
  const int64_t first = PutAndGetRevision(client.get(), "/k", "1");
  const int64_t second = PutAndGetRevision(client.get(), "/k", "2");
  const auto watch = [&](int replies) {
    return Replies<WatchReply>(client.get(), replies, [&](auto on_reply) { client->Watch("/k", "", first, on_reply); });
  };
  const auto changes = watch(2);
  ASSERT_EQ(changes[1].status(), absl::OkStatus());
  ASSERT_EQ(changes[1]->events.size(), 2);
  EXPECT_EQ(changes[1]->events[0].kv.value, "1");
  EXPECT_EQ(changes[1]->events[1].kv.value, "2");
  EXPECT_EQ(changes[1]->events[1].kv.mod_revision, second);
  ASSERT_TRUE(cluster->Call(0, "kv/compaction", absl::StrCat(R"({"revision": ")", second, R"("})")).ok());
  EXPECT_EQ(watch(2)[1].status().code(), absl::StatusCode::kOutOfRange);
}

TEST(EtcdClient, AnEndpointThatIsNotEtcdIsAnErrorWithItsAnswer) {
  EtcdClusterOptions cluster_options;
  cluster_options.members = 1;
  const auto cluster = StartCluster(cluster_options);
  ASSERT_TRUE(cluster);
  EXPECT_TRUE(absl::StrContains(cluster->Call(0, "no/such/path", "{}").status().message(), "HTTP 404"));
  EtcdClientOptions options;
  options.endpoints = {"http://127.0.0.1:1"};
  const auto client = EtcdClient::Create(options).value();
  const auto reply = Replies<RangeReply>(client.get(), 1, [&](auto on_reply) { client->Range("/k", "", on_reply); })[0];
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reply.status().message(), "etcd http://127.0.0.1:1: Connection refused");
}

}  // namespace
}  // namespace lockstep::launch::etcd
