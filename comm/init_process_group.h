// How a process joins the group of all ranks.

#ifndef LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_
#define LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_environment.h"

namespace lockstep::comm {

class ProcessGroup;

// How much the ranks check and report.
enum class Debug {
  kFromEnvironment,  // TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL. If it is not set: OFF, except
                     // that InitProcessGroup() prints its line.
  kOff,
  kInfo,   // each rank logs the backends of each group, and the reasons
  kDetail  // before each collective the ranks compare their calls; costs one round of messages
};

struct Stall;  // in comm/watch/watch.h

struct InitOptions {
  // "auto", a backend's name, or one name for each device type: "cpu:gloo,cuda:nccl". Only backends linked into the
  // program are available. For each device type, "auto" takes the preferred backend of all that every rank has
  // linked and that can serve the group.
  std::string backend = "auto";

  // Where the ranks meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://host:port (rank 0 listens there), or file:///path
  // (a file that all ranks see and that does not exist yet).
  std::string init_method = "env://";

  // -1: taken from the environment, as RANK and WORLD_SIZE.
  int rank = -1;
  int world_size = -1;

  // This rank's place, for a program that knows it otherwise than by this process's variables. Unset:
  // ReadRankEnvironment() reads them. Rank 0 takes its master_listen_fd over.
  std::optional<RankEnvironment> environment;

  // The maximum time for the meeting, and later for each collective.
  absl::Duration timeout = absl::Minutes(30);

  Debug debug = Debug::kFromEnvironment;

  // If an uncaught exception ends this process, its what() is first sent to the other ranks. A terminate handler does
  // this and then calls the previous handler.
  bool report_uncaught_exceptions = true;

  // If this is set, it is asked several times a second while the ranks meet, on any thread. Its first error ends the
  // call, which returns it. It must own everything that it uses.
  std::function<absl::Status()> interruption;

  // When a collective has lasted so long, a line on standard error says since when, and which rank has not begun it:
  //
  //   group "world": all_reduce #7 has lasted 30s: rank 1 (host a, pid 12) has not begun it: its last call was broadcast #6
  //
  // The next lines follow after twice, four times, ... as long. Infinite: never.
  absl::Duration stall_after = absl::Seconds(30);

  // If this is set, it gets what the line would say, every 10 s or so (a third of stall_after) and on each rank, and no
  // line is written. A thread of the group calls it, so it must not block, nor destroy the group. It must own
  // everything that it uses.
  std::function<void(const Stall&)> on_stall;
};

// Meets the other ranks and creates the group. Blocks until all ranks have called it, for at most options.timeout. If
// there are several ranks, rank 0 then prints a line on standard error, unless options.debug or TORCH_DISTRIBUTED_DEBUG
// is set:
//
//   rank 0 of 2: group "world" over cpu:shm (all ranks on one host; hierarchical is for ranks on several hosts; also
//   linked: gloo)
//
// If a faster backend was not taken, the line also says why: a rank, or the program, has not linked it.
//
// Every error names the rank. InvalidArgument: bad options or environment variables. NotFound: a backend is not linked.
// FailedPrecondition: a backend cannot serve these ranks, or a port is in use. AlreadyExists: two ranks have the same
// number. DeadlineExceeded: ranks did not come; the message names them.
absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(const InitOptions& options);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_INIT_PROCESS_GROUP_H_
