// Starts the ranks of one node and watches over them; the library under //tools/launch and under Spawn.
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
  int nproc_per_node = 1;   // ranks that this call starts
  int nnodes = 1;           // nodes on each of which Launch is called
  int node_rank = 0;        // which of them this is
  std::string master_addr;  // rank 0's address; empty, with one node only: 127.0.0.1
  int master_port = 0;      // rank 0's store listens here; 0, with one node only: a free port is chosen
  std::string run_id = "none";
  absl::Duration grace = absl::Seconds(2);         // from SIGTERM to SIGKILL
  std::optional<absl::Duration> failure_grace;     // the same after a rank has failed; else as `grace`
  std::map<std::string, std::string> environment;  // set in every rank, over what is set for it anyway

  // Called once, by the calling thread, when a rank has failed and the others have not ended a second after they were
  // told to: with a status such as Launch will return, whose message says whom it waits for and how long.
  std::function<void(const absl::Status&)> on_failure;

  // The file to execute; empty: argv[0], looked up in $PATH as a shell does.
  std::string executable;
  // For Lockstep's own programs: with one node and a chosen port, rank 0 inherits a socket that listens there on
  // 127.0.0.1, whose descriptor $LOCKSTEP_MASTER_LISTEN_FD names. So nobody can take the port in between, and peers
  // that come early wait for rank 0.
  bool pass_master_socket = false;
  // A rank that exits with 0 without having written a report (see report.h; Spawn writes one for success too) has
  // failed.
  bool require_report = false;
};

// Starts nproc_per_node copies of `argv`, blocks until all of them have ended and returns OK if all exited with 0.
//
// The ranks of one node get a fresh LOCKSTEP_JOB_SECRET, which protects what they write to their store
// (docs/security.md), unless this process or `environment` has one. Several nodes need the same: set it on each.
//
// Each rank has torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...; rank = node_rank *
// nproc_per_node + local rank), this process's working directory, stdout and stderr, no stdin, and a session and
// process group of its own.
//
// When a rank fails, every group, and so what the ranks have started, gets SIGTERM, and after `failure_grace` SIGKILL;
// processes that are stopped, which SIGTERM does not reach, get SIGKILL at once. The status is one line that names the
// first cause. To find it, 100 ms are waited after the first failure; then the earliest counts, with two exceptions. A
// rank killed by a signal comes before those that exited, as peers exit within milliseconds of another rank's death.
// And a rank that fails because its group failed, as comm's process groups note (report.h), comes after all others: if
// nothing else is known, a truer cause is waited for, up to 5 s, while ranks still run. After success too, whatever
// still runs in a rank's group is ended, so nothing is left in any case, except what has moved to a session of its own.
//
// SIGINT, SIGTERM and SIGHUP to this process are passed to the ranks, unless this process ignores them; then comes
// `grace`, then SIGKILL; a second signal brings SIGKILL at once. SIGUSR1 and SIGUSR2, by which schedulers ask a program
// to save, are passed on too, and mean nothing to Launch itself. The handlers for these five are as before when Launch
// returns. The ranks (not what they have started) are killed when the calling thread dies, however it dies.
//
// Thread-safe; the process may have other threads and children but must neither ignore SIGCHLD nor reap the ranks.
// Errors: InvalidArgument for bad options; NotFound, PermissionDenied if the program cannot be executed (no rank is
// left running); ResourceExhausted without processes, descriptors or ports; Cancelled after a signal to this process,
// with what the lowest rank that reported something reported; Aborted for a rank killed by a signal; for a rank that
// exited with an error the code it reported (report.h), else Unknown. See also failure.h.
absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
