// How much of the decisions' states the schedules reach: a state is what the decision, the leader and each node are
// doing, without times, numbers and addresses.

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "lockstep/launch/simulator/node.h"

namespace lockstep::launch {
namespace {

// FNV-1a, so that the number of states does not depend on the run.
class Hash {
 public:
  template <typename... Values>
  void Add(Values... values) {
    ((value_ = (value_ ^ static_cast<uint64_t>(values)) * 0x100000001b3u), ...);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t Simulation::StateNow() const {
  Hash job;
  job.Add(config_.leader_can_change, decision_.phase, Formed(decision_), Stays(decision_), decision_.limits.number > 0,
          decision_.restarts > 0, coordinator_ ? 1 + static_cast<int>(coordinator_->job().phase) : 0);
  uint64_t all = job.value();
  for (const auto& node : nodes_) {
    Hash one;
    one.Add(node->alive, node->cut, node->signalled, node->returned, node->running, node->ending,
            node->index == leader_);
    const auto posted = posts_.find(node->id);
    one.Add(posted == posts_.end() ? 0 : 1 + static_cast<int>(posted->second.phase));
    one.Add(IsMember(decision_, node->id), HasLeft(decision_, node->id), IsDrained(decision_, node->id));
    if (node->steps) {
      one.Add(node->steps->state().phase, std::min<int64_t>(decision_.start - node->steps->state().start, 2));
    }
    const auto any = [&](auto of) { return absl::c_any_of(node->processes, of); };
    one.Add(any([](const Process& process) { return process.ready; }),
            any([](const Process& process) { return process.alive && process.in != 0; }),
            any([](const Process& process) { return !process.alive; }));
    all += one.value();  // which node it is does not matter
  }
  return all;
}

}  // namespace lockstep::launch
