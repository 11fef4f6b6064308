// The rules of simulation.h that look at one decision: who leaves it, why a generation ends, requests, limits and
// order.

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/simulator/node.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {

// Who has left is not lost, also for the next leader.
void Simulation::AuditLeavers(const JobState& job) {
  for (const Leaver& leaver : std::exchange(left_, job.left)) {
    const std::string lost = absl::StrCat(leaver.host, " was lost");
    const auto node = absl::c_find_if(nodes_, [&](const auto& n) { return n->id == leaver.agent; });
    if ((*node)->was_lost) continue;  // before it left
    if ((job.reason != reason_ && absl::StrContains(job.reason, lost)) ||
        absl::StrContains(job.result.message(), lost)) {
      Violation(absl::StrCat(leaver.agent, " has left, and is lost"));
    }
  }
  reason_ = job.reason;
}

// The leader has decided it just now. A node that leaves ends the job only if the others cannot go on without it.
void Simulation::AuditCancelled(const JobState& job) {
  if (job.phase != JobPhase::kDone || std::exchange(has_ended_, true) || !absl::IsCancelled(job.result)) return;
  const auto stays = [&](const auto& post) { return post.second.leaving.empty() && !IsDrained(job, post.first); };
  const int least = MinNodes(job);
  const bool anchor_leaves =
      !config_.leader_can_change && (posts_.count(nodes_[0]->id) == 0 || !stays(*posts_.find(nodes_[0]->id)));
  if (!anchor_leaves && absl::c_count_if(posts_, stays) >= least) {
    Violation(absl::StrCat("the job ends although enough nodes stay: ", job.result.message()));
  }
}

// A job with a fixed number of nodes ends as soon as one of them leaves and no other one is there for it.
void Simulation::AuditNeeded(const JobState& job) {
  const int least = MinNodes(job);
  const int most = MaxNodes(job);
  if (!Stays(job) || job.phase != JobPhase::kRunning || least < most) return;
  const auto leaves = [&](const std::string& agent) {
    const auto post = posts_.find(agent);
    return HasLeft(job, agent) || IsDrained(job, agent) || (post != posts_.end() && !post->second.leaving.empty());
  };
  const auto stay = absl::c_count_if(posts_, [&](const auto& post) { return !leaves(post.first); });
  const auto member = absl::c_find_if(job.members, [&](const Member& member) { return leaves(member.agent); });
  if (member != job.members.end() && stay < least) {
    Violation(absl::StrCat(member->agent, " leaves, and the others go on with too few nodes"));
  }
}

void Simulation::AuditReason(const JobState& job) {
  const bool serves_in_reach = config_.leader_can_change || !Leader()->vanished;
  for (const auto& node : nodes_) {
    const std::string host = absl::StrCat("host host", node->index);
    const bool has_succeeded = !config_.leader_can_change && told_success_[job.start].count(node->id) != 0;
    const bool failed = failed_[job.start].count(node->index) != 0;
    if ((job.reason == absl::StrCat("a rank on ", host, " failed") && !failed) ||
        (job.reason == absl::StrCat(host, " was lost") && ((!node->vanished && serves_in_reach) || has_succeeded)) ||
        (job.reason == absl::StrCat(host, " leaves") && !node->signalled && !IsDrained(job, node->id))) {
      Violation(absl::StrCat("generation ", job.start, " ends without a reason: ", job.reason));
    }
  }
}

// Checks that every request is decided as soon as the leader sees it.
void Simulation::AuditRequests(const JobState& job) {
  for (const auto& [id, post] : posts_) {
    for (const std::string& drained : post.drains) {
      if (posts_.count(drained) != 0 && !IsDrained(job, drained))
        Violation(absl::StrCat(drained, " is drained and nobody says so"));
    }
    if (post.resize.number > job.limits.number) Violation("nobody decides a resize");
  }
}

// Limits are the ones of the decision that forms a generation. Ranks that run end only if there are too many nodes.
void Simulation::AuditLimits(const JobState& job, bool is_new) {
  const int min_nodes = MinNodes(job);
  const int max_nodes = MaxNodes(job);
  const int nodes = static_cast<int>(job.members.size());
  if (is_new && nodes < min_nodes) Violation(absl::StrCat(nodes, " members"));
  const bool some_have_succeeded = !succeeded_[job.start].empty();
  if (nodes > max_nodes && (is_new || !some_have_succeeded)) Violation(absl::StrCat(nodes, " members"));
  for (const Member& member : job.members) {
    if (is_new && IsDrained(job, member.agent)) Violation(absl::StrCat(member.agent, " is drained and takes part"));
  }
}

// Nodes of the generation before keep their order, and others follow.
void Simulation::AuditOrder(const JobState& job) {
  const auto before = members_.find(job.start - 1);
  if (before == members_.end()) return;
  int last = -1;
  for (const Member& member : job.members) {
    const auto found = std::find_if(before->second.begin(), before->second.end(),
                                    [&](const Member& other) { return other.agent == member.agent; });
    if (found == before->second.end()) {
      last = static_cast<int>(before->second.size());
      continue;
    }
    const int index = static_cast<int>(found - before->second.begin());
    if (index < last) Violation(absl::StrCat(member.agent, " comes after a node that was behind it"));
    last = index;
  }
}

}  // namespace lockstep::launch
