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
#include "absl/time/time.h"
#include "lockstep/elastic/chaos/internal/board.h"

namespace lockstep::elastic::chaos::internal {

struct JobOptions {
  std::string launch, program;  // files
  int ranks = 4;
  std::map<std::string, std::string> environment;  // for the program
};

// A rank of the generation that trains.
struct Member {
  int slot = 0, rank = 0;
  pid_t pid = 0;
};

// What the launcher holds.
struct Held {
  int descriptors = 0;
  int64_t kibibytes = 0;
};

class Job {
 public:
  // Starts it in a new folder `folder`. The files of the ranks and of the launcher, temporary ones too, are there.
  static absl::StatusOr<std::unique_ptr<Job>> Start(const std::string& folder, const JobOptions& options);
  // Kills the job if it still runs.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Board& board() { return *board_; }
  // In the environment of each process of the job, and of no other one.
  const std::string& marker() const { return marker_; }

  // The ranks of the newest generation in their order, if all of them train; otherwise none.
  std::vector<Member> Members();

  // The process that the launcher has started last in a slot; 0: none. Read from its log of events.
  pid_t LastStarted(int slot);

  Held held() const;

  bool ended();
  // OK if it ended with success within `patience`. Otherwise it says how it ended, with the launcher's last lines.
  absl::Status AwaitEnd(absl::Duration patience);

  // Of a job that has ended: its processes, and its files in its temporary folders and in /dev/shm. One a line.
  std::vector<std::string> Leftovers() const;

  // The state of each process of the job, with the kernel's stacks of its threads where they may be read.
  std::string Dump() const;

 private:
  explicit Job(std::string folder);
  std::vector<pid_t> Processes() const;
  void ReadEvents();

  const std::string folder_;  // without a slash at its end
  const std::string marker_;
  std::unique_ptr<Board> board_;
  pid_t pid_ = 0;  // of launch
  bool ended_ = false;
  int wait_status_ = 0;
  std::vector<std::string> shm_before_;
  size_t events_read_ = 0;
  std::map<int, pid_t> started_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_JOB_H_
