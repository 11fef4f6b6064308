// The tests of every Rendezvous, the same for each implementation. In its own test:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, RendezvousTest, ::testing::Values(NewJob));
//   INSTANTIATE_TEST_SUITE_P(Tcp, RendezvousSuccessionTest, ::testing::Values(NewJob));   // if another agent can lead
//
// where NewJob is a NewRendezvousJob. Include this header in one source of a test: it contains the tests themselves.

#ifndef LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_SUITE_H_
#define LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_SUITE_H_

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/rendezvous/rendezvous.h"
#include "lockstep/launch/testing/rendezvous_job.h"

namespace lockstep::launch::testing {

class RendezvousTest : public ::testing::TestWithParam<NewRendezvousJob> {
 protected:
  using Agent = std::unique_ptr<Rendezvous>;

  RendezvousTest() : job_(GetParam()()) {}

  Agent Join(const std::string& id, const std::string& secret = "") { return job_->Join(id, secret); }

  // An agent that leads.
  Agent JoinFirst(const std::string& id = "a", const std::string& secret = "") {
    Agent agent = Join(id, secret);
    EXPECT_TRUE(AwaitLead(agent.get())) << agent->Look().status;
    return agent;
  }

  const std::unique_ptr<RendezvousJob> job_;
};

TEST_P(RendezvousTest, TheLeaderSeesThePostsOfAll) {
  const Agent a = JoinFirst(), b = Join("b"), c = Join("c");
  a->Post("text of a");
  b->Post("text of b");
  c->Post("text of c");
  const Texts expected = {{"a", "text of a"}, {"b", "text of b"}, {"c", "text of c"}};
  EXPECT_EQ(AwaitTexts(a.get(), expected), expected);
  for (const auto& [id, agent] : a->Look().agents) EXPECT_GT(agent.received_ns, 0) << id;
}

TEST_P(RendezvousTest, OnlyOneAgentLeadsAndOnlyItSeesPosts) {
  const Agent a = JoinFirst(), b = Join("b");
  b->Post("text");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "text"}}).size(), 1);
  a->Decide("seen");
  ASSERT_EQ(AwaitDecision(b.get(), "seen"), "seen");
  const Rendezvous::View view = b->Look();
  EXPECT_FALSE(view.leads);
  EXPECT_TRUE(view.agents.empty());
}

TEST_P(RendezvousTest, AnAgentThatHasNotPostedIsNotShown) {
  const Agent a = JoinFirst(), b = Join("b"), c = Join("c");
  c->Post("text");
  EXPECT_EQ(AwaitTexts(a.get(), {{"c", "text"}}), (Texts{{"c", "text"}}));
}

TEST_P(RendezvousTest, ADecisionReachesAll) {
  const Agent a = JoinFirst(), b = Join("b"), c = Join("c");
  EXPECT_EQ(c->Look().decision, "");
  a->Decide("go");
  for (const Agent* agent : {&a, &b, &c}) EXPECT_EQ(AwaitDecision(agent->get(), "go"), "go");
}

TEST_P(RendezvousTest, ALaterDecisionReplacesAnEarlierOne) {
  const Agent a = JoinFirst(), b = Join("b");
  for (int i = 0; i < 20; ++i) a->Decide(absl::StrCat("decision ", i));
  EXPECT_EQ(AwaitDecision(b.get(), "decision 19"), "decision 19");
  a->Decide("last");
  EXPECT_EQ(AwaitDecision(b.get(), "last"), "last");
}

TEST_P(RendezvousTest, ALaterPostReplacesAnEarlierOne) {
  const Agent a = JoinFirst(), b = Join("b");
  for (int i = 0; i < 20; ++i) b->Post(absl::StrCat("post ", i));
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "post 19"}}), (Texts{{"b", "post 19"}}));
  const int64_t received_ns = a->Look().agents["b"].received_ns;
  b->Post("last");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "last"}}), (Texts{{"b", "last"}}));
  EXPECT_GT(a->Look().agents["b"].received_ns, received_ns);
}

TEST_P(RendezvousTest, AnAgentThatJoinsLateSeesTheDecision) {
  const Agent a = JoinFirst();
  a->Decide("go");
  ASSERT_EQ(AwaitDecision(a.get(), "go"), "go");
  const Agent b = Join("b");
  EXPECT_EQ(AwaitDecision(b.get(), "go"), "go");
}

TEST_P(RendezvousTest, TheDecisionOfAnAgentThatDoesNotLeadHasNoEffect) {
  const Agent a = JoinFirst(), b = Join("b");
  b->Decide("false");
  b->Post("after the decision");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "after the decision"}}).size(), 1);
  EXPECT_EQ(a->Look().decision, "");
  a->Decide("true");
  EXPECT_EQ(AwaitDecision(b.get(), "true"), "true");
  EXPECT_EQ(AwaitDecision(a.get(), "true"), "true");
}

TEST_P(RendezvousTest, TheTextOfAnAgentThatLeavesIsRemoved) {
  const Agent a = JoinFirst(), b = Join("b");
  a->Post("a");
  b->Post("b");
  ASSERT_EQ(AwaitTexts(a.get(), {{"a", "a"}, {"b", "b"}}).size(), 2);
  b->Leave(absl::Seconds(10));
  EXPECT_EQ(AwaitTexts(a.get(), {{"a", "a"}}), (Texts{{"a", "a"}}));
}

TEST_P(RendezvousTest, TheTextOfAnAgentThatVanishesIsRemoved) {
  const Agent a = JoinFirst();
  Agent b = Join("b");
  b->Post("b");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "b"}}).size(), 1);
  b.reset();
  EXPECT_EQ(AwaitTexts(a.get(), {}), Texts());
  EXPECT_TRUE(a->Look().leads);
}

TEST_P(RendezvousTest, AnAgentComesBackUnderItsId) {
  const Agent a = JoinFirst();
  Agent b = Join("b");
  b->Post("before");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "before"}}).size(), 1);
  b.reset();
  b = Join("b");
  b->Post("after");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "after"}}), (Texts{{"b", "after"}}));
}

TEST_P(RendezvousTest, TheLastDecisionOfALeaderThatLeavesReachesTheOthers) {
  const Agent a = JoinFirst(), b = Join("b");
  b->Post("b");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "b"}}).size(), 1);
  a->Decide("the end");
  a->Leave(absl::Seconds(1));
  EXPECT_EQ(AwaitDecision(b.get(), "the end"), "the end");
}

TEST_P(RendezvousTest, LookMakesTheDescriptorUnreadable) {
  const Agent a = JoinFirst();
  a->Decide("go");
  ASSERT_EQ(AwaitDecision(a.get(), "go"), "go");
  a->Look();
  pollfd ready = {a->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST_P(RendezvousTest, TextsMayHaveAnyBytes) {
  const Agent a = JoinFirst(), b = Join("b");
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  b->Post(bytes);
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", bytes}}), (Texts{{"b", bytes}}));
  a->Decide(bytes + bytes);
  EXPECT_EQ(AwaitDecision(b.get(), bytes + bytes), bytes + bytes);
}

TEST_P(RendezvousTest, ADecisionMayHaveAMebibyte) {
  const Agent a = JoinFirst(), b = Join("b");
  const std::string text(1 << 20, 'x');
  a->Decide(text);
  EXPECT_TRUE(AwaitDecision(b.get(), text) == text) << b->Look().status;
}

TEST_P(RendezvousTest, AgentsWithTheSameSecretMeet) {
  const Agent a = JoinFirst("a", "the secret of this job"), b = Join("b", "the secret of this job");
  b->Post("b");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "b"}}), (Texts{{"b", "b"}}));
  a->Decide("go");
  EXPECT_EQ(AwaitDecision(b.get(), "go"), "go");
}

TEST_P(RendezvousTest, AnAgentWithAnotherSecretIsRefusedAndTheOthersGoOn) {
  const Agent a = JoinFirst("a", "the secret of this job"), stranger = Join("x", "the secret of another job");
  stranger->Post("x");
  const absl::Status status = AwaitError(stranger.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(stranger->Look().status, status);
  const Agent b = Join("b", "the secret of this job");
  b->Post("b");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "b"}}), (Texts{{"b", "b"}}));
  EXPECT_TRUE(a->Look().status.ok());
}

TEST_P(RendezvousTest, TwentyAgentsMeet) {
  std::vector<Agent> agents;
  agents.push_back(JoinFirst("0"));
  Texts expected = {{"0", "text 0"}};
  for (int i = 1; i < 20; ++i) {
    agents.push_back(Join(absl::StrCat(i)));
    expected[absl::StrCat(i)] = absl::StrCat("text ", i);
  }
  for (int i = 0; i < 20; ++i) agents[i]->Post(absl::StrCat("text ", i));
  EXPECT_EQ(AwaitTexts(agents[0].get(), expected), expected);
  agents[0]->Decide("go");
  for (const Agent& agent : agents) EXPECT_EQ(AwaitDecision(agent.get(), "go"), "go");
}

// For implementations whose job outlives its leader.
class RendezvousSuccessionTest : public RendezvousTest {
 protected:
  // Two agents that have posted, of which `a` leads and has decided.
  void JoinTwo() {
    a_ = JoinFirst();
    b_ = Join("b");
    a_->Post("a");
    b_->Post("b");
    ASSERT_EQ(AwaitTexts(a_.get(), {{"a", "a"}, {"b", "b"}}).size(), 2);
    a_->Decide("of a");
    ASSERT_EQ(AwaitDecision(b_.get(), "of a"), "of a");
  }

  // Checks that a new leader sees the texts and can decide.
  void ExpectSuccession() {
    ASSERT_TRUE(AwaitLead(b_.get())) << b_->Look().status;
    EXPECT_EQ(b_->Look().decision, "of a");
    EXPECT_EQ(AwaitTexts(b_.get(), {{"b", "b"}}), (Texts{{"b", "b"}}));
    const Agent c = Join("c");
    b_->Decide("of b");
    EXPECT_EQ(AwaitDecision(c.get(), "of b"), "of b");
  }

  Agent a_, b_;
};

TEST_P(RendezvousSuccessionTest, AnotherAgentLeadsAfterTheLeaderHasVanished) {
  JoinTwo();
  a_.reset();
  ExpectSuccession();
}

TEST_P(RendezvousSuccessionTest, AnotherAgentLeadsAfterTheLeaderHasLeft) {
  JoinTwo();
  a_->Leave(absl::Seconds(10));
  ExpectSuccession();
}

TEST_P(RendezvousSuccessionTest, ALaterJobOfTheSameIdDoesNotSeeTheDecision) {
  JoinTwo();
  a_->Leave(absl::Seconds(10));
  b_->Leave(absl::Seconds(10));
  const Agent c = JoinFirst("c");
  EXPECT_EQ(c->Look().decision, "");
  c->Decide("of c");
  EXPECT_EQ(AwaitDecision(c.get(), "of c"), "of c");
}

// This header serves tests of implementations without succession too.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RendezvousSuccessionTest);

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_SUITE_H_
