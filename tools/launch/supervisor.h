// Starts the ranks of one node and supervises them: the library of //tools/launch and Spawn.
//
//   launch::LaunchOptions options;
//   options.nproc_per_node = 2;
//   const absl::Status status = launch::Launch({"./train", "--epochs=1"}, options);
//   // "rank 1 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL); the other rank was ended"

#ifndef LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
#define LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/failure.h"  // IWYU pragma: export

namespace lockstep::launch {

struct LaunchOptions {
  int nproc_per_node = 1;   // number of ranks that this call starts
  int nnodes = 1;           // number of nodes; Launch must be called on each
  int node_rank = 0;        // index of this node
  std::string master_addr;  // rank 0's address; may be empty with one node: 127.0.0.1
  int master_port = 0;      // port of rank 0's store; may be 0 with one node: a free port is chosen
  std::string run_id = "none";
  absl::Duration grace = absl::Seconds(2);              // time from SIGTERM to SIGKILL
  absl::Duration stopped_patience = absl::Seconds(10);  // how long ranks may be stopped after the others have ended
  std::optional<absl::Duration> failure_grace;          // the same after a rank has failed; default: `grace`
  std::map<std::string, std::string> environment;       // set in every rank; overrides the launcher's variables

  // Called once, on the calling thread, if a rank has failed and the others have not ended one second after SIGTERM.
  // Its argument is a status like the one that Launch will return. The message says for which ranks it waits, and how
  // long.
  std::function<void(const absl::Status&)> on_failure;

  // The file to execute. Default: argv[0], searched in $PATH as by a shell.
  std::string executable;
  // For Lockstep's own programs: with one node and a chosen port, rank 0 inherits a socket that listens at that port on
  // 127.0.0.1. $LOCKSTEP_MASTER_LISTEN_FD is its descriptor. So no other process can take the port meanwhile, and ranks
  // that arrive early wait for rank 0.
  bool pass_master_socket = false;
  // A rank has failed if it exits with 0 and has not written a report (see report.h; Spawn also writes one for
  // success).
  bool require_report = false;
};

// Starts nproc_per_node copies of `argv`, blocks until all have ended, and returns OK if all exited with 0.
//
// The ranks of one node get a new LOCKSTEP_JOB_SECRET, which protects the values in their store (docs/security.md),
// unless this process or `environment` has one. Several nodes need the same secret: set it on each.
//
// Each rank has torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...; rank = node_rank *
// nproc_per_node + local rank), this process's working directory, stdout and stderr, and no stdin. Each is in a new
// session and process group.
//
// If a rank fails, the process groups of all ranks, and so the processes that the ranks started, get SIGTERM, and
// SIGKILL after `failure_grace`. Stopped processes, which do not react to SIGTERM, get SIGKILL at once. The status is
// one line that names the first cause. To find it, Launch waits for 100 ms after the first failure. Then the earliest
// failure counts, with two exceptions. A rank killed by a signal precedes ranks that exited, since peers exit within
// milliseconds of another rank's death. And a rank that failed because its group failed, as comm's process groups
// report (report.h), comes last: without another failure, Launch waits for up to 5 s for the real cause, while
// ranks still run. After success too, processes left in a rank's group are ended. So nothing is left running, except
// for processes that moved to another session.
//
// If every rank that still runs has been stopped (as by SIGSTOP) for `stopped_patience`, and another rank has ended,
// these ranks have failed. A rank that a debugger holds is not stopped in this sense. While all ranks run, their groups
// detect a stopped rank.
//
// SIGINT, SIGTERM and SIGHUP to this process are forwarded to the ranks, unless this process ignores them. SIGKILL
// follows after `grace`, or at once after a second signal. SIGUSR1 and SIGUSR2, with which schedulers ask a program to
// save, are forwarded too, and have no effect on Launch itself. Launch restores the handlers of these five signals
// before it returns. If the calling thread dies, however it dies, the ranks are killed (but not the processes that they
// started).
//
// Thread-safe. The process may have other threads and children, but must not ignore SIGCHLD or reap the ranks. Errors:
// InvalidArgument for bad options. NotFound or PermissionDenied if the program cannot be executed (no rank is left
// running). ResourceExhausted without free processes, descriptors or ports. Cancelled after a signal to this process,
// with the report of the lowest rank that wrote one. Aborted for a rank killed by a signal. For a rank that exited with
// an error, the code in its report (report.h), or Unknown. See also failure.h.
absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
