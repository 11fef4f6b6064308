// A rank without tensors, for tests of agent_link: all ranks count steps together, and go on when others end.
//
// A step is a barrier: every rank sends rank 0 a byte, and rank 0 answers all of them. A rank that comes later gets the
// count from rank 0. The first $DIE_EARLY processes kill themselves before they open their links, which the others do
// after $OPEN_AFTER_MS. The program ends with $EXIT_CODE, or 0, after $STEPS steps; or rank 0 then ends the job for the
// reason $END_JOB. If there is $SLEEPS_AT, the first process of local rank 1 sleeps for good at that step, and the
// others say every 5 s that they wait for it. If $AFTER is set, rank $AFTER_RANK of the last generation gets that
// signal 0.1 s after its work. SIGUSR1 makes it exit with 0 at once. For each generation it appends "<number> <rank> of
// <world size>, local rank <n>, pid <pid>, step <n>, node <$NODE>, at <microseconds>: <reason>" to $D/generations
// (places.h).

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/link/agent_link.h"

namespace {

using lockstep::MonotonicNanos;
using lockstep::UniqueFd;
using lockstep::launch::AgentLink;
using lockstep::launch::RankGeneration;
using Order = AgentLink::Order;

constexpr int kPeerTimeoutMs = 30000, kStallPauseMs = 5000;

int Number(const char* name, int otherwise) {
  int value = otherwise;
  const char* const text = getenv(name);
  return text && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

absl::Status Lost(const char* what) { return absl::UnavailableError(absl::StrCat(what, ": a rank is gone")); }

template <typename T>
absl::Status Send(const UniqueFd& socket, const T& value) {
  return send(socket.get(), &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value) ? absl::OkStatus() : Lost("send");
}

// Waits for the launcher's word too, which Join() may have read already: a peer that has been stopped keeps its
// connections.
template <typename T>
absl::Status Receive(const UniqueFd& socket, AgentLink* link, T* value) {
  for (;;) {
    if (link->order() == Order::kRegroupNow) return Lost("order");
    pollfd fds[] = {{socket.get(), POLLIN, 0}, {link->fd(), POLLIN, 0}};
    const int events = poll(fds, 2, getenv("SLEEPS_AT") ? kStallPauseMs : kPeerTimeoutMs);
    if (events <= 0 && !getenv("SLEEPS_AT")) return Lost("poll");
    if (events <= 0) link->ReportStall("barrier #7 has lasted 30s: rank 1 has not begun it", 1);
    if (fds[0].revents != 0) {
      return recv(socket.get(), value, sizeof(*value), MSG_WAITALL) == sizeof(*value) ? absl::OkStatus() : Lost("recv");
    }
  }
}

// The ranks of one generation. The connections end with the object.
class Group {
 public:
  static absl::StatusOr<std::unique_ptr<Group>> Form(const RankGeneration& generation, AgentLink* link) {
    std::unique_ptr<Group> group(new Group(link));
    if (generation.rank > 0) {
      LOCKSTEP_RETURN_IF_ERROR(group->Connect(generation));
      return group;
    }
    for (int rank = 1; rank < generation.world_size; ++rank)
      LOCKSTEP_RETURN_IF_ERROR(group->Accept(generation.listen_fd));
    return group;
  }

  // Rank 0's value, on every rank. The same as a barrier.
  absl::Status Broadcast(int* value) { return AllReduce(value, /*from_rank_0=*/true); }
  // The largest value of all ranks.
  absl::Status Max(int* value) { return AllReduce(value, /*from_rank_0=*/false); }

 private:
  explicit Group(AgentLink* link) : link_(*link) {}

  absl::Status Connect(const RankGeneration& generation) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(generation.master_port));
    if (inet_pton(AF_INET, generation.master_addr.c_str(), &address.sin_addr) != 1) return Lost("address");
    // Nobody has to try again: the launcher has bound the port.
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return Lost("connect");
    is_0_ = false;
    others_.push_back(std::move(fd));
    return absl::OkStatus();
  }

  absl::Status Accept(const UniqueFd& listener) {
    for (;;) {
      if (link_.order() == Order::kRegroupNow) return Lost("order");
      pollfd fds[] = {{listener.get(), POLLIN, 0}, {link_.fd(), POLLIN, 0}};
      if (poll(fds, 2, kPeerTimeoutMs) <= 0) return Lost("accept");
      if (fds[0].revents != 0) break;
    }
    others_.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return others_.back().valid() ? absl::OkStatus() : Lost("accept");
  }

  absl::Status AllReduce(int* value, bool from_rank_0) {
    if (!is_0_) {
      LOCKSTEP_RETURN_IF_ERROR(Send(others_[0], *value));
      return Receive(others_[0], &link_, value);
    }
    for (const UniqueFd& other : others_) {
      int theirs = 0;
      LOCKSTEP_RETURN_IF_ERROR(Receive(other, &link_, &theirs));
      if (!from_rank_0) *value = std::max(*value, theirs);
    }
    for (const UniqueFd& other : others_) LOCKSTEP_RETURN_IF_ERROR(Send(other, *value));
    return absl::OkStatus();
  }

  AgentLink& link_;
  bool is_0_ = true;
  std::vector<UniqueFd> others_;  // of rank 0: all others; of the others: rank 0
};

void Record(const RankGeneration& generation, int step) {
  const char* const node = getenv("NODE");
  const std::string line =
      absl::StrCat(generation.number, " ", generation.rank, " of ", generation.world_size, ", local rank ",
                   generation.local_rank, ", pid ", getpid(), ", step ", step, ", node ", node ? node : "-", ", at ",
                   MonotonicNanos() / 1000, ": ", generation.reason, "\n");
  const UniqueFd file(open(absl::StrCat(getenv("D"), "/generations").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  if (write(file.get(), line.data(), line.size()) < 0) std::cerr << "cannot write to $D/generations\n";
}

// Returns whether nobody has slept before.
bool SleepsHere() { return mkdir(absl::StrCat(getenv("D"), "/sleeps").c_str(), 0700) == 0; }

// OK after $STEPS steps, or when the ranks must regroup between two steps. Otherwise a rank is gone.
absl::Status Train(const RankGeneration& generation, AgentLink* link, int* step) {
  static const int steps = Number("STEPS", 1000000), pause_us = Number("PAUSE_US", 1000);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Group> group, Group::Form(generation, link));
  LOCKSTEP_RETURN_IF_ERROR(group->Max(step));  // a survivor may be a step ahead, and a new rank is far behind
  Record(generation, *step);
  while (*step < steps) {
    usleep(static_cast<useconds_t>(pause_us));
    if (generation.local_rank == 1 && *step == Number("SLEEPS_AT", -1) && SleepsHere()) pause();
    int leaves = link->order() == Order::kGoOn ? 0 : 1;
    LOCKSTEP_RETURN_IF_ERROR(group->Max(&leaves));
    link->ReportStep(++*step);
    if (leaves) return absl::OkStatus();
  }
  int done = 0;
  return group->Broadcast(&done);
}

void DieEarly() {
  for (int i = 0; i < Number("DIE_EARLY", 0); ++i) {
    if (mkdir(absl::StrCat(getenv("D"), "/died", i).c_str(), 0700) == 0) raise(SIGKILL);
  }
}

void EndAfterWork(int rank) {
  if (rank != Number("AFTER_RANK", 0) || Number("AFTER", 0) == 0) return;
  usleep(100000);
  signal(Number("AFTER", 0), SIG_DFL);  // sanitizers handle SIGSEGV
  raise(Number("AFTER", 0));
}

absl::Status Run() {
  DieEarly();
  usleep(static_cast<useconds_t>(1000 * Number("OPEN_AFTER_MS", 0)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AgentLink> link, AgentLink::Open());
  lockstep::launch::JoinOptions options;
  options.min_ranks = Number("MIN_RANKS", 1);
  options.leave_timeout = absl::Seconds(Number("LEAVE_TIMEOUT", 10));
  options.timeout = absl::Minutes(1);
  const int steps = Number("STEPS", 1000000);
  for (int step = 0;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const RankGeneration generation, link->Join(options));
    const absl::Status trained = Train(generation, link.get(), &step);
    const char* const ends_job = getenv("END_JOB");
    if (trained.ok() && step >= steps && !ends_job) {
      link->Finish(/*all_have=*/true);
      EndAfterWork(generation.rank);
      return absl::OkStatus();
    }
    if (trained.ok() && step >= steps && generation.rank == 0) {
      link->EndJob(ends_job);
      return absl::AbortedError(ends_job);
    }
    options.reason = std::string(trained.message());
  }
}

}  // namespace

int main() {
  signal(SIGUSR1, [](int) { _exit(0); });
  if (Number("IGNORE_TERM", 0) != 0) signal(SIGTERM, SIG_IGN);
  const absl::Status status = Run();
  if (status.ok()) return Number("EXIT_CODE", 0);
  std::cerr << status.message() << "\n";
  return 1;
}
