// torch.multiprocessing.spawn's counterpart: one program that is its own launcher.
//
//   int main(int argc, char** argv) {
//     const absl::Status status = launch::Spawn(2, [&](int local_rank) { return Train(local_rank, argv[1]); });
//     if (!status.ok()) std::cerr << status.message() << "\n";
//     return launch::ExitCode(status);
//   }

#ifndef LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_
#define LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/failure.h"  // IWYU pragma: export

namespace lockstep::launch {

struct SpawnOptions {
  // As in LaunchOptions (supervisor.h): with several nodes every one of them calls Spawn.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  absl::Duration grace = absl::Seconds(2);
  std::optional<absl::Duration> failure_grace;
  std::map<std::string, std::string> environment;
  // Tells this call from others where ranks may come by fewer calls than their parent did, as when `arguments` selects
  // one test.
  std::string name;
  // Added to the command line of the ranks.
  std::vector<std::string> arguments;
  // As in LaunchOptions; where there is none, the message is printed to stderr.
  std::function<void(const absl::Status&)> on_failure;
};

// Runs fn(local rank) in `nprocs` new processes and blocks until all have ended. Each is this program, started anew
// with the same command line: main runs in it up to the same call of Spawn, which there runs `fn`, tells the parent how
// it went and calls std::exit (0 or 1) and so does not return. In the parent it returns Launch's status (supervisor.h):
// OK if fn returned OK in every rank, else one line that names the rank that failed first and what fn returned, or
// threw, there; with fn's status code.
//
// So what comes before Spawn runs 1 + nprocs times: it must lead to Spawn by the same way every time, and must not
// touch what only one process may (write files, bind ports, start GPU work). A rank that ends without having run fn to
// its end has failed, even with code 0. An exception that ends a rank's process is told to the parent, too.
//
// Ranks have Launch's environment and guarantees. With one node and no master_port, rank 0 inherits the socket that
// already listens at MASTER_PORT, named by $LOCKSTEP_MASTER_LISTEN_FD.
//
// A program may call Spawn several times, one after the other: in a rank of the second call the first returns at once
// what it returned in the parent. Not from several threads at once. FailedPrecondition: inside a rank's fn, or where a
// rank reaches a call of Spawn that its parent had not reached. InvalidArgument, ResourceExhausted, Cancelled and
// Aborted as Launch.
absl::Status Spawn(int nprocs, const std::function<absl::Status(int local_rank)>& fn, const SpawnOptions& options = {});

// For a program that starts its own ranks when it is run by hand, and is one rank when a launcher runs it. Where a
// launcher other than Spawn has set RANK (torchrun, //tools/launch), runs fn(LOCAL_RANK, or 0 where that is not set) in
// this process, reports an error to the launcher (report.h) and returns what `fn` returned; what it throws is Internal.
// Else as Spawn.
absl::Status SpawnUnlessLaunched(int nprocs, const std::function<absl::Status(int local_rank)>& fn,
                                 const SpawnOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_
