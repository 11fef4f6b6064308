#include "lockstep/launch/node/job_link.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/launch/job/job_json.h"

namespace lockstep::launch {
namespace {

// A leader of many agents takes their posts together: it reads all that has come in this time for each agent at once.
constexpr absl::Duration kPauseForEachAgent = absl::Microseconds(20);
// Agents try to reach the rendezvous at least once a second, but a connection that hangs takes longer.
constexpr absl::Duration kMembersReturn = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<JobLink>> JobLink::Start(const JobLimits& limits,
                                                        std::unique_ptr<Rendezvous> rendezvous) {
  LOCKSTEP_ASSIGN_OR_RETURN(Event changed, Event::Create("launch: no eventfd"));
  LOCKSTEP_ASSIGN_OR_RETURN(Event wake, Event::Create("launch: no eventfd"));
  std::unique_ptr<JobLink> link(new JobLink(limits, std::move(rendezvous), std::move(changed), std::move(wake)));
  LOCKSTEP_ASSIGN_OR_RETURN(link->thread_, StartThread("the agent's thread", [raw = link.get()] { raw->Run(); }));
  return link;
}

JobLink::JobLink(const JobLimits& limits, std::unique_ptr<Rendezvous> rendezvous, Event changed, Event wake)
    : limits_(limits), rendezvous_(std::move(rendezvous)), changed_(std::move(changed)), wake_(std::move(wake)) {}

JobLink::~JobLink() { Leave(absl::ZeroDuration()); }

void JobLink::Post(const AgentState& state) {
  {
    MutexLock lock(mutex_);
    pending_post_ = EncodeAgent(state, MonotonicNanos());
  }
  wake_.Set();
}

absl::StatusOr<JobState> JobLink::TakeJob() {
  changed_.Clear();
  MutexLock lock(mutex_);
  return job_;
}

Rendezvous::Reach JobLink::reach() const {
  MutexLock lock(mutex_);
  return reach_;
}

std::optional<int> JobLink::ready() const {
  MutexLock lock(mutex_);
  return ready_;
}

void JobLink::Leave(absl::Duration timeout) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.Set();
  thread_.join();
  rendezvous_->Leave(timeout);
}

void JobLink::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (stop_) break;
    }
    PostPending();
    const Rendezvous::View view = rendezvous_->Look();
    if (!view.status.ok()) {
      MutexLock lock(mutex_);
      job_ = view.status;
      break;
    }
    TakeView(view);
    RecordReturn(view.reach.away);
    if (view.leads && !AwaitsMembers(view)) {
      Lead(view);
    } else {
      coordinator_.reset();
      agents_.clear();
      MutexLock lock(mutex_);
      ready_.reset();
    }
    Wait(WaitTime(view));
  }
  PostPending();
  changed_.Set();
}

void JobLink::PostPending() {
  std::string text;
  {
    MutexLock lock(mutex_);
    text.swap(pending_post_);
  }
  if (!text.empty()) rendezvous_->Post(text);
}

void JobLink::TakeView(const Rendezvous::View& view) {
  const bool is_new = view.decision != decision_;
  {
    MutexLock lock(mutex_);
    const bool was_away = reach_.away;
    reach_ = view.reach;
    if (!is_new && reach_.away == was_away) return;
    // An empty decision is one that a job of the same id before this one left.
    if (is_new) job_ = view.decision.empty() ? JobState() : DecodeJob(view.decision);
    restart_times_.resize(job_.ok() ? job_->restarts : 0, MonotonicTime());
  }
  decision_ = view.decision;
  changed_.Set();
}

void JobLink::RecordReturn(bool away) {
  if (away) {
    members_until_ = absl::InfiniteFuture();
  } else if (members_until_ == absl::InfiniteFuture()) {
    members_until_ = MonotonicTime() + kMembersReturn;
  }
}

// If the rendezvous was out of reach for this agent, it was so for others, whose posts have been removed. They are not
// lost: they post again, as this agent has.
bool JobLink::AwaitsMembers(const Rendezvous::View& view) {
  if (MonotonicTime() >= members_until_) return false;
  MutexLock lock(mutex_);
  const JobState job = job_.value_or(JobState());
  const bool all_are_there = absl::c_all_of(job.members, [&](const Member& member) {
    return view.agents.count(member.agent) != 0 || HasLeft(job, member.agent);
  });
  if (all_are_there) members_until_ = absl::InfinitePast();
  return !all_are_there;
}

void JobLink::Lead(const Rendezvous::View& view) {
  if (!coordinator_) {
    MutexLock lock(mutex_);
    coordinator_.emplace(limits_, job_.value_or(JobState()), MonotonicTime(), restart_times_);
  }
  Agents agents;
  int ready = 0;
  std::map<std::string, Received> all;
  for (const auto& [id, agent] : view.agents) {
    Received& received = all[id];
    const auto known = agents_.find(id);
    if (known != agents_.end()) received = std::move(known->second);
    if (received.received_ns != agent.received_ns) {
      const absl::StatusOr<AgentState> state = DecodeAgent(agent.text, agent.received_ns);
      received.received_ns = agent.received_ns;
      received.state = state.ok() ? std::make_optional(*state) : std::nullopt;
    }
    if (!received.state) continue;
    ready += received.state->phase == AgentState::Phase::kReady;
    agents.emplace(id, *received.state);
  }
  agents_ = std::move(all);
  if (coordinator_->Update(agents, MonotonicTime())) rendezvous_->Decide(EncodeJob(coordinator_->job()));
  MutexLock lock(mutex_);
  ready_ = ready;
}

absl::Duration JobLink::WaitTime(const Rendezvous::View& view) const {
  if (!view.leads) return absl::InfiniteDuration();
  return (coordinator_ ? coordinator_->next_look() : members_until_) - MonotonicTime();
}

void JobLink::Wait(absl::Duration time) {
  if (agents_.size() > 1) absl::SleepFor(kPauseForEachAgent * static_cast<int64_t>(agents_.size()));
  pollfd fds[] = {{rendezvous_->fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
  poll(fds, 2, PollTimeout(std::min(time, absl::Hours(1))));
  if (fds[1].revents != 0) wake_.Clear();
}

}  // namespace lockstep::launch
