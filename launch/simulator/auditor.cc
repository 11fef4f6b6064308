// The rules of simulation.h.

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/launch/simulator/node.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {

void Simulation::AuditDecision(const JobState& job, bool told_success) {
  Trace(absl::StrCat("decision: phase ", static_cast<int>(job.phase), ", generation ", job.start, ", ",
                     job.members.size(), " members, ", job.reason, job.result.ToString()));
  if (job.limits.max_nodes == 99 || IsMember(job, kStranger)) Violation("a launcher of another job is heard");
  if (Stays(job)) {
    Trace(absl::StrCat("ranks: generation ", job.ranks.generation, ", phase ", static_cast<int>(job.ranks.phase),
                       ", order ", static_cast<int>(job.ranks.order), ", ", job.ranks.order_reason));
  }
  // As after a signal: a node that leaves may take its failure with it.
  if (job.drained.size() > drained_ || job.limits.number > resized_) first_failure_[job.start] = "?";
  drained_ = job.drained.size();
  resized_ = job.limits.number;
  const bool forms_anew = job.phase == JobPhase::kForming && phase_ != JobPhase::kForming;
  if (job.phase == JobPhase::kEnding && phase_ != JobPhase::kEnding) AuditReason(job);
  phase_ = job.phase;
  restarts_ += forms_anew && absl::StrContains(job.reason, "; restart ");
  if (restarts_ > limits_.max_restarts) Violation(absl::StrCat(restarts_, " restarts"));
  if (job.phase == JobPhase::kDone && job.result.ok()) {
    for (const Member& member : Stays(job) ? std::vector<Member>() : job.members) {
      if (!succeeded_[job.start][member.agent]) Violation(absl::StrCat("success without ", member.agent));
    }
  }
  if (!config_.leader_can_change && told_success && (job.phase != JobPhase::kDone || !job.result.ok())) {
    Violation("all ranks have succeeded, and the job goes on or fails");
  }
  AuditLeavers(job);
  if (Stays(job)) AuditStaying(job);
  const bool too_often = Stays(job) && !job.ranks.verdict.ok();  // processes were started again
  if (job.phase == JobPhase::kDone && absl::IsUnknown(job.result) && !Formed(job) && !too_often) {
    const std::string& first = first_failure_[job.start];
    bool names_one = absl::StrContains(first, "?");
    for (const absl::string_view host : absl::StrSplit(first, ' ', absl::SkipEmpty())) {
      names_one |= absl::StrContains(job.result.message(), absl::StrCat(host, ":"));
    }
    if (!names_one) {
      Violation(absl::StrCat("the first failure was on", first, ", but the job says: ", job.result.message()));
    }
  }
  members_[job.start] = job.members;
  if (job.phase != JobPhase::kRunning) return;
  const auto [known, is_new] = formed_.emplace(job.start, job.members);
  const auto same = [](const Member& a, const Member& b) { return a.agent == b.agent && a.port == b.port; };
  if (!Stays(job) &&
      !std::equal(job.members.begin(), job.members.end(), known->second.begin(), known->second.end(), same)) {
    Violation(absl::StrCat("generation ", job.start, " has two lists of members"));
  }
  if (is_new || !Stays(job)) AuditLimits(job, is_new);
  if (!is_new) return;
  AuditOrder(job);
  const auto [used, unused] = ports_.emplace(job.members[0].port, job.start);
  if (used->second != job.start) Violation(absl::StrCat("port ", job.members[0].port, " is used again"));
}

void Simulation::AuditStart(const Node& node, const NodeStart& start) {
  if (node.signalled && !node.running && node.steps->state().signal != 0) {
    Violation(absl::StrCat(node.id, " starts ranks although it leaves"));
  }
  if (decision_.phase != JobPhase::kRunning && node.decision_seen == decisions_) {
    Violation(absl::StrCat(node.id, " starts ranks that nobody wants"));
  }
  std::map<std::string, NodeStart>& started = started_[start.number];
  const std::vector<Member>& members = formed_[start.number];
  const int64_t entry = node.steps->state().entry;
  const bool is_first =
      std::any_of(members.begin(), members.end(), [&](const Member& member) { return member.entry == entry; });
  // Once processes stay, their places are the ones in their generations.
  const bool has_place = is_first && !Stays(decision_);
  // Nodes come while ranks of others stay.
  const std::string key = is_first ? node.id : absl::StrCat(node.id, " ", entry);
  if (!started.emplace(key, start).second) {
    Violation(absl::StrCat(node.id, " starts generation ", start.number, " twice"));
  }
  if (started_.rbegin()->first > start.number) {
    Violation(absl::StrCat(node.id, " starts generation ", start.number, " after a later one"));
  }
  int rank = 0, index = -1;
  for (int i = 0; has_place && i < static_cast<int>(members.size()); ++i) {
    if (members[i].agent == node.id) {
      index = i;
      if (start.first_rank != rank) Violation(absl::StrCat(node.id, " has a wrong first rank"));
    }
    rank += members[i].ranks;
  }
  if (has_place &&
      (index != start.node_rank || start.world_size != rank || start.nnodes != static_cast<int>(members.size()))) {
    Violation(absl::StrCat(node.id, " starts at a wrong place"));
  }
  if (has_place && (start.master_port != members[0].port || start.master_addr != members[0].address)) {
    Violation(absl::StrCat(node.id, " has another address of rank 0"));
  }
  if (index == 0 && start.master_port != node.port) Violation(absl::StrCat(node.id, " does not hold the port"));
  for (const auto& other : nodes_) {
    const bool old = other->running && other->start < start.number;
    const bool must_have_ended =
        other->cut && other->knows_cut && now() - other->cut_ms > kAgentIsAway + kSettle + kGrace;
    if (old && ((Reachable(*other) && !other->evicted_in_run) || must_have_ended)) {
      Violation(
          absl::StrCat(node.id, " starts generation ", start.number, " while ", other->id, " runs ", other->start));
    }
  }
  if (started.size() == members.size()) {
    growth_.started_ms[start.number] = now();
    growth_.started_messages[start.number] = messages_;
  }
}

// The number of nodes that could start.
int Simulation::Candidates() const {
  return static_cast<int>(std::count_if(posts_.begin(), posts_.end(),
                                        [this](const auto& post) { return !IsDrained(decision_, post.first); }));
}

// Checks that nothing waits for long without a reason.
void Simulation::AuditWaiting() {
  const Node* leader = Leader();
  const bool leads = leader && Reachable(*leader) && !leader->returned && leader->steps;
  const auto is_ready = [](const auto& post) { return post.second.phase == AgentPhase::kReady; };
  const bool all_ready = std::all_of(posts_.begin(), posts_.end(), is_ready);
  const bool may_form =
      leads && decision_.phase == JobPhase::kForming && all_ready && Candidates() >= MinNodes(decision_);
  if (!may_form) form_since_ms_ = -1;
  if (may_form && form_since_ms_ < 0) form_since_ms_ = now();
  if (may_form && now() - form_since_ms_ > absl::ToInt64Milliseconds(limits_.last_call) + 3 * kSecond) {
    Violation("no generation forms although enough nodes are ready");
  }
  const bool failing = leads && !Formed(decision_) && decision_.phase == JobPhase::kRunning &&
                       std::any_of(posts_.begin(), posts_.end(), [&](const auto& post) {
                         const auto is_it = [&](const Member& member) { return member.agent == post.first; };
                         return post.second.phase == AgentPhase::kFailing && post.second.start == decision_.start &&
                                absl::c_any_of(decision_.members, is_it);
                       });
  if (!failing) failing_since_ms_ = -1;
  if (failing && failing_since_ms_ < 0) failing_since_ms_ = now();
  if (failing && now() - failing_since_ms_ > kSlowest) Violation("a rank has failed, and its generation goes on");
  AuditRanksWait();
  for (const auto& node : nodes_) {
    const bool waits_for_others = Stays(decision_) && decision_.ranks.finished_members > 0;
    const bool leaves = leads && Reachable(*node) && !node->returned && node->steps &&
                        !node->steps->state().leaving.empty() && !waits_for_others;
    if (!leaves) node->leaves_since_ms = -1;
    if (leaves && node->leaves_since_ms < 0) node->leaves_since_ms = now();
    if (leaves && now() - node->leaves_since_ms > 8 * kSecond)
      Violation(absl::StrCat(node->id, " leaves and does not return"));
  }
}

void Simulation::AuditEnd() {
  const absl::Status* result = nullptr;
  for (const auto& node : nodes_) {
    if (node->alive && !node->returned) {
      Violation(absl::StrCat(node->id, " never returns: phase ", static_cast<int>(node->steps->state().phase),
                             ", generation ", node->steps->state().start, "; the job is in phase ",
                             static_cast<int>(decision_.phase), " of generation ", decision_.start));
    }
    const bool saw_the_end = node->returned && decision_.phase == JobPhase::kDone &&
                             node->decision_seen == decisions_ && node->steps->state().phase != AgentPhase::kLeaving;
    if (!saw_the_end || node->result.message() == kLost) continue;
    if (result && node->result != *result) {
      Violation(absl::StrCat("agents return ", result->ToString(), " and ", node->result.ToString()));
    }
    result = &node->result;
  }
  report_.result = result ? std::string(absl::StatusCodeToString(result->code())) : "NONE";
}

// --- Processes that stay ---

// How a decision ends them, if it does.
void Simulation::AuditStaying(const JobState& job) {
  if (limits_.max_restarts > 0 && job.restarts > limits_.max_restarts) {
    Violation(absl::StrCat(job.restarts, " restarts"));
  }
  RankGeneration& last = generations_[job.ranks.generation];
  if (job.ranks.order != RegroupOrder::kGoOn && last.ordered_ms < 0) last.ordered_ms = now();
  AuditComplete(job);
  AuditLeftOut(job);
  if (job.phase == JobPhase::kDone && job.result.ok() && !last.passed &&
      last.finished < static_cast<int>(job.ranks.members.size())) {
    Violation(
        absl::StrCat("success with ", last.finished, " of ", static_cast<int>(job.ranks.members.size()), " ranks"));
  }
  if (job.phase != JobPhase::kEnding || job.ranks.verdict.ok()) return;
  const absl::string_view text = job.ranks.verdict.message();
  const bool restarted = job.restarts >= (limits_.max_restarts > 0 ? limits_.max_restarts : 10);
  if (!restarted && !absl::StrContains(text, "generations ended before they completed a step") &&
      !absl::StrContains(text, " of at least ")) {
    Violation(absl::StrCat("ranks that may go on are ended: ", text));
  }
}

// A process hears of its next generation.
void Simulation::AuditTold(const Node& node, int slot) {
  const RankPlan& ranks = node.slots->plan();
  const Process& process = node.processes[slot];
  const int rank = node.slots->place(slot).rank, world_size = static_cast<int>(ranks.members.size());
  Trace(absl::StrCat("process ", process.id, " of ", node.id, " is rank ", rank, " of ", world_size, " in generation ",
                     ranks.generation, ": ", ranks.reason));
  const auto [known, is_new] = generations_.try_emplace(ranks.generation);
  RankGeneration& generation = known->second;
  if (is_new || generation.processes.empty()) {
    AuditAfterWork("a generation forms", ranks.generation - 1);
    generation.told_ms = now();
    generation.world_size = world_size;
    generation.port = ranks.master_port;
    generation.leader_epoch = leader_epoch_;
    if (config_.max_ranks > 0 && world_size > config_.max_ranks) {
      Violation(absl::StrCat("generation ", ranks.generation, " has ", world_size, " ranks, and may have ",
                             config_.max_ranks));
    }
    const auto [used, unused] = link_ports_used_.emplace(ranks.master_port, ranks.generation);
    if (!unused) Violation(absl::StrCat("port ", ranks.master_port, " is used again"));
    AuditFirstCause(node);
    AuditCuts(ranks.generation);
  }
  if (!generation.processes.emplace(rank, process.id).second || generation.world_size != world_size ||
      generation.port != ranks.master_port || rank >= world_size) {
    Violation(absl::StrCat("generation ", ranks.generation, " has two lists of members"));
  }
  if (!process.ready || process.in != 0) {
    Violation(absl::StrCat("process ", process.id, " hears of a generation while it is in ", process.in));
  }
  for (const auto& other : nodes_) {
    const bool counts = Reachable(*other) && !other->evicted_in_run && !other->ending && other->slots;
    for (const Process& peer : other->processes) {
      if (counts && peer.alive && !peer.done && peer.in != 0 && peer.in < ranks.generation) {
        Violation(absl::StrCat("process ", peer.id, " of ", other->id, " is still in generation ", peer.in));
      }
    }
  }
  // The order of the generation before.
  const auto before = generations_.find(ranks.generation - 1);
  if (before == generations_.end()) return;
  const auto rank_of = [](const RankGeneration& in, int64_t id) {
    const auto found =
        std::find_if(in.processes.begin(), in.processes.end(), [&](const auto& p) { return p.second == id; });
    return found == in.processes.end() ? -1 : found->first;
  };
  const int earlier = rank_of(before->second, process.id);
  for (const auto& [peer_rank, peer] : generation.processes) {
    const int peer_earlier = rank_of(before->second, peer);
    if (earlier < 0 || peer_earlier < 0 || peer == process.id) continue;
    if ((earlier < peer_earlier) != (rank < peer_rank)) Violation("ranks do not keep their order");
  }
}

void Simulation::RecordFailure(const Node& node, const Process& process, const Failure& failure) {
  // The leader may have counted it into the next generation.
  if (process.in == 0 || process.done) {
    failed_while_waiting_[absl::StrCat("host host", node.index, ": ", failure.status.message())] = failure.killed;
  }
  if (process.in == 0) return;
  RankGeneration::Death failed;
  failed.node = node.index;
  failed.done = process.done;
  failed.failure = failure;
  generations_[process.in].deaths.push_back(std::move(failed));
}

void Simulation::AuditFirstCause(const Node& node) {
  const RankPlan& ranks = node.slots->plan();
  const auto before = generations_.find(ranks.generation - 1);
  if (before == generations_.end() || before->second.leader_epoch != leader_epoch_) return;
  std::vector<RankGeneration::Death> failures = before->second.deaths;
  failures.erase(std::remove_if(failures.begin(), failures.end(), [](const auto& each) { return each.done; }),
                 failures.end());
  const auto first = std::min_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return std::make_pair(!a.failure.killed, a.failure.time_ns) < std::make_pair(!b.failure.killed, b.failure.time_ns);
  });
  if (first == failures.end()) return;
  const auto was_gone = [&](const Node& other) {
    // The leader may not have known yet when that generation formed.
    return !Reachable(other) || other.signalled || other.gone_ms >= before->second.told_ms - 2 * kSlowest;
  };
  for (const auto& failed : failures) {
    if (was_gone(*nodes_[failed.node])) return;
  }
  for (const auto& other : nodes_) {
    // A node whose rank failed before it knew that ranks stay ends all of them.
    const bool has_failed = failed_[decision_.start].count(other->index) != 0;
    const std::string host = absl::StrCat("host host", other->index);
    if ((was_gone(*other) || has_failed) && absl::StartsWith(ranks.reason, host)) return;
  }
  for (const auto& [waiting, killed] : failed_while_waiting_) {
    if (absl::StartsWith(ranks.reason, waiting)) return;
  }
  const std::string text = absl::StrCat("host host", first->node, ": ", first->failure.status.message());
  if (!absl::StartsWith(ranks.reason, text)) {
    Violation(absl::StrCat("generation ", ranks.generation - 1, " ended because of ", text,
                           ", and ranks hear: ", ranks.reason));
  }
}

// An order, and the decision to kill, may take some time to the store.
void Simulation::AuditKill(const Node& node, int slot) {
  const Process& process = node.processes[slot];
  const auto generation = generations_.find(process.in);
  if (!process.alive || generation == generations_.end()) return;
  if (process.done) Violation(absl::StrCat("process ", process.id, " has done its work, and is killed"));
  if (now() - generation->second.ordered_ms < kLeaveTime - kSlowest) {
    Violation(absl::StrCat("process ", process.id, " of ", node.id, " is killed before its time"));
  }
}

// The processes of a node are about to be ended.
void Simulation::AuditEnding(const Node& node) {
  if (!node.slots || !node.slots->plan().stays) return;
  const Node* leader = Leader();
  const bool out_of_reach = !Reachable(node) || node.evicted_in_run || node.vanished || !leader || leader->vanished;
  const bool is_asked = node.signalled || IsDrained(decision_, node.id) || decision_.limits.number > 0;
  const bool goes_on = decision_.phase == JobPhase::kRunning && decision_.start == node.start;
  if (left_out_.count(node.id) != 0) return;
  if (goes_on && !out_of_reach && !is_asked) Violation(absl::StrCat(node.id, " ends ranks that may stay"));
}

// Checks the end of a job whose ranks have done all their work.
void Simulation::AuditComplete(const JobState& job) {
  RankGeneration& last = generations_[job.ranks.generation];
  if (job.phase != JobPhase::kDone || !job.ranks.complete) return;
  // Nobody learns of a failure on a node that is cut off and then lost.
  const bool all_there = absl::c_all_of(
      nodes_, [](const auto& node) { return (!node->vanished || node->returned) && !node->evicted_in_run; });
  const bool has_failed = absl::c_any_of(last.deaths, [](const auto& each) { return !each.failure.killed; });
  if (all_there && has_failed && job.result.ok()) Violation("a rank failed after its work, and the job succeeds");
  const bool failed_before = absl::c_any_of(generations_, [](const auto& each) {
    return absl::c_any_of(each.second.deaths, [](const auto& one) { return !one.failure.killed; });
  });
  const bool failed_waiting = absl::c_any_of(failed_while_waiting_, [&](const auto& failed) {
    return !failed.second && absl::StrContains(job.result.message(), failed.first);
  });
  if (!failed_before && !failed_waiting && !job.result.ok() &&
      absl::StrContains(job.result.message(), "had done their work")) {
    Violation(absl::StrCat("no rank failed by itself, and the job fails: ", job.result.message()));
  }
}

// Records the time when no process of the generation is left that may have to do its work again.
void Simulation::RecordIfComplete(int64_t generation) {
  const auto found = generations_.find(generation);
  if (found == generations_.end() || !found->second.passed || found->second.complete_ms >= 0) return;
  for (const auto& node : nodes_) {
    for (const Process& process : node->processes) {
      const auto is_it = [&](const auto& member) { return member.second == process.id; };
      if (process.alive && !process.done && absl::c_any_of(found->second.processes, is_it)) return;
    }
  }
  found->second.complete_ms = now();
}

// The leader has had time to hear that all have done their work, unless a node has taken that with it.
void Simulation::AuditAfterWork(const std::string& what, int64_t generation) {
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return;
  const RankGeneration& ranks = found->second;
  if (ranks.complete_ms < 0 || now() - ranks.complete_ms < 3 * kSlowest) return;
  for (const auto& node : nodes_) {
    if (!Reachable(*node) || node->signalled || node->gone_ms >= ranks.told_ms) return;
  }
  Violation(absl::StrCat(what, ", and all ranks of generation ", generation, " have done their work"));
}

// A generation forms once all that live wait for one.
void Simulation::AuditRanksWait() {
  const Node* leader = Leader();
  const bool leads =
      leader && Reachable(*leader) && !leader->returned && Stays(decision_) && decision_.phase == JobPhase::kRunning;
  bool all_wait = leads, has_survivor = false, is_complete = !Formed(decision_);
  int nodes = 0;
  for (const auto& node : nodes_) {
    if (!node->slots || !all_wait || IsDrained(decision_, node->id)) continue;
    all_wait &= Reachable(*node) && !node->evicted_in_run && !node->ending;
    nodes +=
        std::any_of(node->processes.begin(), node->processes.end(), [](const Process& p) { return p.ready || p.done; });
    is_complete &= node->steps && std::count_if(node->processes.begin(), node->processes.end(),
                                                [](const Process& p) { return p.ready; }) >= node->steps->state().ranks;
    for (const Process& process : node->processes) {
      all_wait &= !process.alive || process.ready || process.done;
      has_survivor |= process.ready && process.was_in;
    }
  }
  const int least = MinNodes(decision_);
  const bool may_form = all_wait && (has_survivor || is_complete) && nodes >= least;
  if (!may_form) ranks_wait_since_ms_ = -1;
  if (may_form && ranks_wait_since_ms_ < 0) ranks_wait_since_ms_ = now();
  if (ranks_wait_since_ms_ >= 0 && now() - ranks_wait_since_ms_ > 6 * kSecond) {
    Violation("all ranks wait, and no generation forms");
  }
}

}  // namespace lockstep::launch
