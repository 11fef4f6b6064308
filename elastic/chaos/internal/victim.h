// A process that may be hurt: by its pidfd, so never another one that has got its pid.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_VICTIM_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_VICTIM_H_

#include <stdint.h>
#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::elastic::chaos::internal {

// Returns whether the environment of the process contains `text`. A process that has just been forked may not have it
// yet.
bool EnvironmentContains(pid_t pid, absl::string_view text);

// The number of its open descriptors; -1: the process is gone.
int DescriptorsOf(pid_t pid);

// Its resident memory in KiB; 0: the process is gone.
int64_t MemoryOf(pid_t pid);

class Victim {
 public:
  // NotFound: there is no such process, or its environment does not contain `marker`, so it is none of the job's.
  static absl::StatusOr<Victim> Find(pid_t pid, absl::string_view marker);

  pid_t pid() const { return pid_; }
  // Does nothing if the process has ended.
  void Signal(int signal) const;
  bool ended() const;

  // It cannot open a descriptor more.
  void TakeDescriptors() const;

 private:
  Victim(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  UniqueFd pidfd_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_VICTIM_H_
