// The coordinator's decisions about ranks that stay, as several nodes carry them out.

#ifndef LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_NODES_H_
#define LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_NODES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/job/node_slots.h"

namespace lockstep::launch::testing {

class MembershipNodesTest : public ::testing::Test {
 protected:
  // The launcher of a node, whose processes are only numbers.
  struct Node {
    std::optional<AgentSteps> steps;
    std::optional<NodeSlots> slots;
    std::vector<std::string> told;  // by slot
    int port = 0;
  };

  MembershipNodesTest() {
    limits_.min_nodes = 1;
    limits_.max_nodes = 3;
    limits_.last_call = absl::ZeroDuration();
  }

  void Lead() { coordinator_.emplace(limits_, JobState(), Now()); }
  // Another agent leads, which knows only what all know.
  void LeadAnew() { coordinator_.emplace(limits_, *DecodeJob(EncodeJob(coordinator_->job())), Now()); }

  absl::Time Now() const { return absl::UnixEpoch() + absl::Seconds(seconds_); }
  const JobState& job() const { return coordinator_->job(); }

  void Add(const std::string& id, int ranks = 2, int spares = 0) {
    AgentState state;
    state.host = id;
    state.address = absl::StrCat(id, ".net");
    state.ranks = ranks;
    state.spares = spares;
    Node& node = nodes_[id];
    node.steps.emplace(id, state);
    node.steps->OnPort(1);
  }

  Agents Posts() {
    Agents agents;
    for (auto& [id, node] : nodes_) {
      if (node.slots) node.steps->OnSlots(*node.slots, node.port);
      agents[id] = node.steps->state();
    }
    return agents;
  }

  // Posts and decisions arrive until nothing changes.
  void Settle() {
    for (int i = 0; i < 20; ++i) {
      coordinator_->Update(Posts(), Now());
      for (auto& [id, node] : nodes_) Update(&node);
    }
  }

  void Update(Node* node) {
    node->steps->OnJob(job());
    if (node->steps->TakeStart()) {
      const int slots = node->steps->state().ranks + node->steps->state().spares;
      node->slots.emplace(slots);
      node->told.assign(slots, "");
      node->port = ++ports_;
    }
    if (!node->slots) return;
    if (node->steps->MustEnd()) {
      node->slots.reset();
      node->steps->OnEnd(/*succeeded=*/false, {});
      return;
    }
    node->slots->OnRanks(node->steps->Ranks());
    for (const NodeSlots::Action& action : node->slots->Take()) Carry(node, action);
    if (node->slots->has_used(node->port)) node->port = ++ports_;
  }

  void Carry(Node* node, const NodeSlots::Action& action) {
    std::string& told = node->told[action.slot];
    if (action.kind == NodeSlots::Action::Kind::kGeneration) {
      const RankGeneration ranks = node->slots->GenerationOf(action.slot);
      told = absl::StrCat(ranks.rank, " of ", ranks.world_size, " in ", ranks.number, " at ", ranks.master_addr, ":",
                          ranks.master_port);
      if (ranks.rank == 0) {
        EXPECT_EQ(ranks.master_port, node->port);
      }
      reason_ = ranks.reason;
    } else if (action.kind == NodeSlots::Action::Kind::kOrder) {
      told = node->slots->plan().order == RegroupOrder::kNow ? "now" : "after step";
      reason_ = node->slots->plan().order_reason;
    } else {
      told = action.kind == NodeSlots::Action::Kind::kStart  ? "start"
             : action.kind == NodeSlots::Action::Kind::kKill ? "kill"
                                                             : "give up";
    }
  }

  void Ready(const std::string& id, int slot, int64_t left = 0, const std::vector<std::string>& silent_hosts = {}) {
    JoinOptions ask;
    ask.silent_hosts = silent_hosts;
    ask.leave_timeout = absl::Seconds(10);
    nodes_[id].slots->OnReady(slot, left, ask);
  }

  // The members of the last generation of these nodes have left it.
  void Leave(const std::vector<std::string>& ids) {
    const int64_t generation = job().ranks.generation;
    for (const std::string& id : ids) {
      for (int slot = 0; slot < static_cast<int>(nodes_[id].told.size()); ++slot) {
        const std::string& told = nodes_[id].told[slot];
        if (told == "now" || told == "after step") Ready(id, slot, generation);
      }
    }
    Settle();
  }

  void Fail(const std::string& id, int slot, const std::string& text, int64_t time_ns, bool killed = true) {
    Failure failure;
    failure.status = absl::AbortedError(text);
    failure.killed = killed;
    failure.time_ns = time_ns;
    nodes_[id].slots->OnEnd(slot, std::move(failure));
  }

  // Nodes a and b start two processes each, and `spares`.
  void StartTwo(int spares = 0) {
    Lead();
    for (const char* id : {"a", "b"}) Add(id, 2, spares);
    Settle();
  }

  // Nodes a and b run, with two ranks each.
  void RunTwo(int spares = 0) {
    StartTwo(spares);
    for (const char* id : {"a", "b"}) {
      for (int slot = 0; slot < 2 + spares; ++slot) Ready(id, slot);
    }
    Settle();
  }

  // Nodes a, b and c run, with one rank each; `least` of them are enough.
  void RunThree(int least) {
    limits_.min_nodes = least;
    Lead();
    for (const char* id : {"a", "b", "c"}) Add(id, 1);
    Settle();
    for (const char* id : {"a", "b", "c"}) Ready(id, 0);
    Settle();
    EXPECT_THAT(Told("a"), ::testing::ElementsAre("0 of 3 in 1 at a.net:11"));
  }

  std::vector<std::string> Told(const std::string& id) const { return nodes_.at(id).told; }

  JobLimits limits_;
  double seconds_ = 0;
  int ports_ = 10;
  std::optional<Coordinator> coordinator_;
  std::map<std::string, Node> nodes_;
  std::string reason_;  // that a process has heard last
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_NODES_H_
