// Starts the ranks from the program itself, as torch.multiprocessing.spawn does in Python.
//
//   int main(int argc, char** argv) {
//     const absl::Status status = launch::Spawn(2, [&](int local_rank) { return Train(local_rank, argv[1]); });
//     if (!status.ok()) std::cerr << status.message() << "\n";
//     return launch::ExitCode(status);
//   }

#ifndef LOCKSTEP_LAUNCH_SPAWN_H_
#define LOCKSTEP_LAUNCH_SPAWN_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/report/failure.h"  // IWYU pragma: export

namespace lockstep::launch {

struct SpawnOptions {
  // As in LaunchOptions (supervisor.h). With several nodes, Spawn must be called on each.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  absl::Duration grace = absl::Seconds(2);
  std::optional<absl::Duration> failure_grace;
  std::map<std::string, std::string> environment;
  // Distinguishes this call from others, if ranks reach it after fewer calls than their parent, for example because
  // `arguments` selects one test.
  std::string name;
  // Added to the ranks' command line.
  std::vector<std::string> arguments;
  // As in LaunchOptions. Default: prints the message to stderr.
  std::function<void(const absl::Status&)> on_failure;
};

// Runs fn(local rank) in `nprocs` new processes and blocks until all have ended. Each process runs this program again
// with the same command line. Its main runs up to the same call of Spawn. There it runs `fn`, reports the outcome to
// the parent and calls std::exit (0 or 1), so Spawn does not return. In the parent it returns Launch's status
// (supervisor.h): OK if fn returned OK in every rank. Otherwise the message is one line that names the rank that failed
// first and the error or exception of its fn, and the code is that of fn's status.
//
// So code before Spawn runs 1 + nprocs times. It must reach Spawn in the same way every time, and must not do anything
// that only one process may do (write files, bind ports, start GPU work). A rank that ends before its fn returns has
// failed, even with exit code 0. An exception that ends a rank's process is reported to the parent too.
//
// Ranks have Launch's environment and guarantees. Spawn does not make this process a child subreaper, so a process that
// a rank moves to another session (setsid, daemonize) stays behind, and if this process gets SIGKILL, so do the ranks'
// children. //launch ends these too. With one node and no master_port, rank 0 inherits a socket that already
// listens at MASTER_PORT; $LOCKSTEP_MASTER_LISTEN_FD names it.
//
// A program may call Spawn several times in sequence. In a rank of the second call, the first call immediately returns
// its result from the parent. Do not call it from several threads at once. FailedPrecondition: a call inside a rank's
// fn, or a call that a rank reaches but its parent did not. InvalidArgument, ResourceExhausted, Cancelled and Aborted:
// as Launch.
absl::Status Spawn(int nprocs, const std::function<absl::Status(int local_rank)>& fn, const SpawnOptions& options = {});

// For a program that starts its own ranks when it is run by hand, and is one rank when a launcher runs it. If a
// launcher other than Spawn has set RANK (torchrun, //launch), it runs fn(LOCAL_RANK, or 0 if that is not set) in
// this process, reports an error to the launcher (report.h) and returns the result of `fn`; an exception becomes
// Internal. So it does if Open MPI's mpirun, a launcher that sets PMI_SIZE and a local rank, or srun has started this
// process together with others. Otherwise it calls Spawn. InvalidArgument: the local rank is not a number.
absl::Status SpawnUnlessLaunched(int nprocs, const std::function<absl::Status(int local_rank)>& fn,
                                 const SpawnOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_SPAWN_H_
