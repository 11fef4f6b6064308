// The ranks that train together, and what a rank asks of them.

#ifndef LOCKSTEP_LAUNCH_LINK_RANK_GENERATION_H_
#define LOCKSTEP_LAUNCH_LINK_RANK_GENERATION_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// The exit code of a program whose state is saved, and that can go on when it is started again: EX_TEMPFAIL of
// sysexits.h.
inline constexpr int kResumableExitCode = 75;

// The failure that ended a generation, if a rank failed by itself: an error of its program, an exit, a signal such as
// SIGSEGV, or that it did not leave a broken generation in time.
struct StepFailure {
  int64_t step = -1;  // the one that was under way; -1: unknown
  int rank = -1;      // in that generation; -1: all ranks, or nobody knows which one
  std::string cause;  // "sample 240 is broken", "exited with code 3"
};

// The ranks that train together until one of them ends or another one comes, from one rank's view.
struct RankGeneration {
  int64_t number = 0;  // from 1; each is higher than the one before
  int rank = 0;        // from 0 to world_size - 1
  int world_size = 1;
  int local_rank = 0;        // as LOCAL_RANK: a rank keeps it. It may be larger than the number of ranks on the node
  int local_world_size = 1;  // the ranks of this generation on the node
  int node_rank = 0;
  int nnodes = 1;
  std::string master_addr;  // of rank 0
  int master_port = 0;
  UniqueFd listen_fd;  // on rank 0, if the launcher has bound the port: a socket that listens there. Otherwise invalid
  bool regroups = true;  // another generation follows when a rank fails: not with a static rendezvous of several nodes
  std::string reason;    // why the generation before ended, in a sentence about a rank; "" for the first one
  // The failure behind `reason`, if a rank of that generation failed by itself.
  std::optional<StepFailure> failure;
};

struct JoinOptions {
  int min_ranks = 1;  // the smallest world size. The largest value of all ranks counts
  int max_ranks = 0;  // the largest; other processes wait to take a rank's place. The smallest counts; 0: any number
  int max_restarts =
      -1;  // of failed ranks, in the job's life, unless the launcher has --max_restarts. The largest counts; -1: any
           // number, unless another rank names one above 0
  absl::Duration leave_timeout = absl::Seconds(10);  // for leaving a broken generation
  absl::Duration timeout = absl::Minutes(30);        // for this call; at least leave_timeout
  std::string reason;  // why this rank has left its generation, for people; "": it was told to
  // The failure behind `reason`, for the ranks of the next generation, if the training has failed: on this rank, or on
  // all of them.
  std::optional<StepFailure> failure;
  // The addresses of other hosts that have not answered this one in that generation. The next one may leave one out.
  std::vector<std::string> silent_hosts;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_LINK_RANK_GENERATION_H_
