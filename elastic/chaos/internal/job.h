// A training under launch, as the program that hurts it sees it.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_JOB_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_JOB_H_

#include <stdint.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/elastic/chaos/internal/board.h"
#include "lockstep/elastic/chaos/internal/host.h"
#include "lockstep/elastic/chaos/internal/meeting.h"

namespace lockstep::elastic::chaos::internal {

struct JobOptions {
  std::string launch, program;                     // files
  int hosts = 1;                                   // launchers, all on this machine
  bool network = false;                            // each in a network namespace, as is etcd
  bool replaces_stalled = false;                   // --stall-timeout=30
  int ranks = 4;                                   // of a host
  Rendezvous rendezvous = Rendezvous::kEtcd;       // with several hosts
  std::map<std::string, std::string> environment;  // for the program
};

// A rank of the generation that trains.
struct Member {
  int slot = 0, rank = 0;
  pid_t pid = 0;
};

// The resources that a launcher holds.
struct Held {
  pid_t pid = 0;  // of the launcher
  int descriptors = 0;
  int64_t kibibytes = 0;
};

class Job {
 public:
  // Starts it in a new folder `folder`. The files of the ranks and of the launcher, temporary ones too, are there.
  static absl::StatusOr<std::unique_ptr<Job>> Start(const std::string& folder, const JobOptions& options);
  // Kills what still runs of the job.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Board& board() { return *board_; }
  // In the environment of each process of the job, and of no other one.
  const std::string& marker() const { return marker_; }

  // The ranks of the newest generation in their order, if all of them train; otherwise none.
  std::vector<Member> Members();

  // The process that a launcher has started last in a slot; 0: none.
  pid_t LastStarted(int slot) { return hosts_[HostOf(slot)].LastStarted(slot % ranks_); }

  int hosts() const { return static_cast<int>(hosts_.size()); }
  int HostOf(int slot) const { return slot / ranks_; }
  Host& host(int number) { return hosts_[number]; }
  std::vector<int> RunningHosts();
  // All ranks of the running hosts train.
  bool IsWhole();
  // The host's launcher may end from now on, until it is started again.
  void ExpectEnd(int number) { lost_[number].is_expected = true; }
  // Its launcher, which has ended, is started again after `pause`.
  void StartAgain(int number, absl::Duration pause);
  bool IsLost(int number) const { return lost_[number].is_expected; }
  Meeting* meeting() { return meeting_.get(); }  // null with one host

  // Null without network hosts. Host `number` of the job is its host `number` + 1.
  const comm::testing::NetworkHosts* network() const { return network_.get(); }
  bool replaces_stalled() const { return replaces_stalled_; }

  // `launch command...` on a host; returns its pid. The caller reaps it. Its output is in "commands".
  absl::StatusOr<pid_t> StartCommand(std::vector<std::string> command, int host = 0) const;
  // The number of lines with this text that launchers and their ranks have written.
  int CountLines(absl::string_view text) const;

  // Starts the launchers whose pause is over. Call it often. Aborted: a launcher has ended by itself.
  absl::Status Tend();

  // The resources of the launchers that run, by host.
  std::map<int, Held> held();

  // OK if all launchers have ended with one of these exit codes within `patience`. Otherwise it says how they ended.
  absl::Status AwaitEnd(absl::Duration patience, const std::vector<int>& codes = {0});

  // The processes that a job leaves when it has ended, and its files in its temporary folders and in /dev/shm. One a
  // line. The socket of a launcher that SIGKILL ended is left, until the next command: Leftovers() runs one.
  std::vector<std::string> Leftovers() const;

  // The state of each process of the job, with the kernel's stacks of its threads where they may be read.
  std::string Dump() const;

 private:
  struct Lost {
    bool is_expected = false;
    int64_t start_ns = 0;  // 0: not yet known
  };

  Job(std::string folder, const JobOptions& options);
  absl::Status MakeHosts(const JobOptions& options);
  std::vector<std::string> PrefixOf(int host) const;

  const std::string folder_;  // without a slash at its end
  const std::string marker_;
  const std::string launch_;
  const int ranks_;
  std::map<std::string, std::string> environment_;
  std::unique_ptr<Board> board_;
  const bool replaces_stalled_;
  std::unique_ptr<comm::testing::NetworkHosts> network_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<Host> hosts_;
  std::vector<Lost> lost_;  // by host
  std::vector<std::string> shm_before_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_JOB_H_
