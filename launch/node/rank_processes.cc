#include "lockstep/launch/node/rank_processes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/launch/process/group_members.h"
#include "lockstep/launch/process/job_cgroup.h"
#include "lockstep/launch/process/process_state.h"
#include "lockstep/launch/process/strays.h"

namespace lockstep::launch {

absl::Status RankProcesses::Open() {
  ends_ = AboveStdio(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  if (ends_.valid()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("launch: no epoll: ", strerror(errno)));
}

absl::Status RankProcesses::Add(int slot, Rank rank) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = slot;
  if (epoll_ctl(ends_.get(), EPOLL_CTL_ADD, rank.process.pidfd.get(), &event) != 0) {
    const int error = errno;
    kill(-rank.process.pid, SIGKILL);
    waitpid(rank.process.pid, nullptr, 0);
    return absl::ResourceExhaustedError(absl::StrCat("launch: a rank's end cannot be noticed: ", strerror(error)));
  }
  ranks_.resize(std::max<size_t>(ranks_.size(), slot + 1));
  ranks_[slot] = std::move(rank);
  return absl::OkStatus();
}

void RankProcesses::EndGroup(int slot) {
  if (std::exchange(ranks_[slot].gone, true)) return;
  kill(-ranks_[slot].process.pid, SIGKILL);
  waitpid(ranks_[slot].process.pid, nullptr, WNOHANG);
}

void RankProcesses::AppendTo(std::vector<pollfd>* fds) const {
  fds->push_back({ends_.get(), POLLIN, 0});
  for (const UniqueFd& stray : strays_) fds->push_back({stray.get(), POLLIN, 0});
}

// An epoll lists descriptors in the order in which they became ready.
std::vector<int> RankProcesses::TakeEnds() {
  strays_.erase(std::remove_if(strays_.begin(), strays_.end(), HasEnded), strays_.end());
  std::vector<epoll_event> events(ranks_.size());
  const int ready = events.empty() ? 0 : epoll_wait(ends_.get(), events.data(), static_cast<int>(events.size()), 0);
  std::vector<int> slots;
  for (int i = 0; i < ready; ++i) {
    slots.push_back(static_cast<int>(events[i].data.u64));
    epoll_ctl(ends_.get(), EPOLL_CTL_DEL, ranks_[slots.back()].process.pidfd.get(), nullptr);
  }
  return slots;
}

std::vector<pid_t> RankProcesses::Groups() const {
  std::vector<pid_t> groups;
  for (const Rank& rank : ranks_) {
    if (!rank.gone) groups.push_back(rank.process.pid);
  }
  return groups;
}

void RankProcesses::Signal(int signal) const {
  for (const pid_t group : Groups()) kill(-group, signal);
}

void RankProcesses::SignalAll(int signal) {
  end_signal_ = signal;
  Signal(signal);
  SignalOrphans();
}

void RankProcesses::SignalOrphans() { launch::SignalOrphans(options_.subreaper, Groups(), end_signal_, &told_); }

void RankProcesses::Kill() {
  killing_ = true;
  KillJobCgroup(options_.cgroup);
  Signal(SIGKILL);
  KillStrays(options_.subreaper, Groups());
}

std::vector<pid_t> RankProcesses::Stopped() const { return StoppedMembers(Groups()); }

bool RankProcesses::AreGone() {
  strays_ = LiveStrays(options_.subreaper, Groups());
  if (killing_ && !strays_.empty()) Kill();
  return strays_.empty();
}

std::string RankProcesses::NotEnded() const { return launch::NotEnded(StatesOfStrays(options_.subreaper, Groups())); }

void RankProcesses::Reap() {
  for (const pid_t group : Groups()) waitpid(group, nullptr, WNOHANG);
}

}  // namespace lockstep::launch
