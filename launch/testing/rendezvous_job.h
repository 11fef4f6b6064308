// For tests of a Rendezvous: how its agents are made, and how a test waits for their views.

#ifndef LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_JOB_H_
#define LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_JOB_H_

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch::testing {

// A job that no agent has joined yet. It outlives its agents.
class RendezvousJob {
 public:
  virtual ~RendezvousJob() = default;

  // The first agent of a job can always lead. `secret` may be empty. The time to live should be a few seconds.
  virtual std::unique_ptr<Rendezvous> Join(const std::string& id, const std::string& secret) = 0;
};

using NewRendezvousJob = std::function<std::unique_ptr<RendezvousJob>()>;

// More than the time to live and all that a loaded machine adds.
inline constexpr absl::Duration kRendezvousLimit = absl::Seconds(30);

// The first view for which `condition` holds, or the last one within `limit`. Sleeps until the descriptor is readable,
// so a change that is not announced there is not seen.
inline Rendezvous::View AwaitView(Rendezvous* agent, const std::function<bool(const Rendezvous::View&)>& condition,
                                  absl::Duration limit = kRendezvousLimit) {
  const absl::Time deadline = absl::Now() + limit;
  Rendezvous::View view = agent->Look();
  while (!condition(view) && absl::Now() < deadline) {
    pollfd ready = {agent->fd(), POLLIN, 0};
    poll(&ready, 1, PollTimeout(deadline - absl::Now()));
    view = agent->Look();
  }
  return view;
}

inline bool AwaitLead(Rendezvous* agent) {
  return AwaitView(agent, [](const auto& view) { return view.leads || !view.status.ok(); }).leads;
}

inline std::string AwaitDecision(Rendezvous* agent, const std::string& text) {
  return AwaitView(agent, [&text](const auto& view) { return view.decision == text || !view.status.ok(); }).decision;
}

inline absl::Status AwaitError(Rendezvous* agent, absl::Duration limit = kRendezvousLimit) {
  return AwaitView(
             agent, [](const auto& view) { return !view.status.ok(); }, limit)
      .status;
}

using Texts = std::map<std::string, std::string>;

inline Texts TextsOf(const Rendezvous::View& view) {
  Texts texts;
  for (const auto& [id, agent] : view.agents) texts[id] = agent.text;
  return texts;
}

// The texts of all agents by id, as the leader sees them: `expected` or what was there at the limit.
inline Texts AwaitTexts(Rendezvous* leader, const Texts& expected) {
  return TextsOf(AwaitView(leader, [&expected](const auto& view) { return TextsOf(view) == expected; }));
}

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_TESTING_RENDEZVOUS_JOB_H_
