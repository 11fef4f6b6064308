// How a process joins the group of all ranks.

#ifndef LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_
#define LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::comm {

class ProcessGroup;

// How closely the ranks look at each other.
enum class Debug {
  kFromEnvironment,  // TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL; if it is not set, as OFF, except that
                     // InitProcessGroup() prints its line
  kOff,
  kInfo,   // each rank logs for each group which backends it has, and why
  kDetail  // before each collective the ranks compare what they are about to do; costs a round of messages
};

struct InitOptions {
  // "auto", a backend's name, or one a device type: "cpu:gloo,cuda:nccl". Only those linked into the program are known.
  // "auto" takes for each device type the preferred one of those that every rank has linked and that can serve the
  // group.
  std::string backend = "auto";

  // Where the ranks meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://host:port (rank 0 listens there), or file:///path
  // (a file that all ranks see and that does not exist yet).
  std::string init_method = "env://";

  // -1: RANK and WORLD_SIZE of the environment.
  int rank = -1;
  int world_size = -1;

  // The longest that meeting, and later any one collective, may take.
  absl::Duration timeout = absl::Minutes(30);

  Debug debug = Debug::kFromEnvironment;

  // An exception that nobody catches ends this process: its what() is told to the other ranks before, by a terminate
  // handler that then calls the one that was there.
  bool report_uncaught_exceptions = true;
};

// Meets the other ranks and makes the group. Blocks until all have called it, for options.timeout at most. Rank 0 of
// several then prints a line on standard error, unless options.debug or TORCH_DISTRIBUTED_DEBUG is set:
//
//   rank 0 of 2: group "world" over cpu:shm (all ranks on one host; hierarchical is for ranks on several hosts; also
//   linked: gloo)
//
// It says too which faster backend was not taken: because a rank has not linked it, or because the program has not.
//
// Every error names the rank: InvalidArgument for bad options or environment variables, NotFound for a backend that is
// not linked, FailedPrecondition for one that cannot serve these ranks and for a port in use, AlreadyExists for a rank
// number given twice, DeadlineExceeded naming the ranks that did not come.
absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(const InitOptions& options);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_
