// Starts the ranks of one node and supervises them: the library of //launch and Spawn.
//
//   launch::LaunchOptions options;
//   options.nproc_per_node = 2;
//   const absl::Status status = launch::Launch({"./train", "--epochs=1"}, options);
//   // "rank 1 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL); the other rank was ended"

#ifndef LOCKSTEP_LAUNCH_SUPERVISOR_H_
#define LOCKSTEP_LAUNCH_SUPERVISOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/launch_options.h"  // IWYU pragma: export
#include "lockstep/launch/report/failure.h"      // IWYU pragma: export

namespace lockstep::launch {

// Starts nproc_per_node copies of `argv`, blocks until all have ended, and returns OK if all exited with 0.
//
// The ranks of one node get a new LOCKSTEP_JOB_SECRET, which protects the values in their store (docs/security.md),
// unless this process or `environment` has one. Several nodes need the same secret: set it on each. Ranks that are
// started again get a new one.
//
// Each rank has torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...; rank = node_rank *
// nproc_per_node + local rank), this process's working directory, stdout and stderr, and no stdin. Each is in a new
// session and process group.
//
// If a rank fails, the process groups of all ranks, and so the processes that the ranks started, get SIGTERM, and
// SIGKILL after `failure_grace`. Stopped processes, which do not react to SIGTERM, get SIGKILL at once. The status is
// one line that names the first cause. To find it, Launch waits for 100 ms after the first failure, unless that is a
// rank that a signal such as SIGKILL or SIGSEGV killed. Then the earliest failure counts, with two exceptions. A rank
// killed by a signal precedes ranks that exited, since peers exit within milliseconds of another rank's death. And a
// rank that failed because its group failed, as comm's process groups report (report.h), comes last: without another
// failure, Launch waits for up to 5 s for the real cause, while ranks still run. After success too, processes left in a
// rank's group are ended. So nothing is left running, except for processes that moved to another session; `subreaper`
// includes those.
//
// With one node, ranks that join generations (launch/link) stay when another one fails. Once their first generation has
// formed, the rules above do not hold for them: the rank that failed is started again, and the others go on. Each of
// the `spares` is a process more, which starts when a rank of the node has asked for a generation. It joins too, and
// takes the place of a rank that fails at once. It has a LOCAL_RANK from nproc_per_node on. It must use no device
// before it has joined: then it gets the local rank, and so the device, of the rank that failed. numa_binding does not
// bind spares.
//
// With numa_binding, each rank and all its threads run on CPUs of one NUMA node: of the node of the visible GPU that
// has the number of its local rank, if the host has that many visible GPUs. Otherwise the ranks are spread over the
// nodes, neighbours together, in proportion to the nodes' cores. CPUs that are offline, or on which this process may
// not run, are left out. Memory is not bound: Linux takes it from the node where a thread runs.
//
// Ranks whose output is neither redirected nor teed have this process's stdout and stderr, and nothing is between. A
// teed stream is a pipe. Its bytes go to the file as they are. Its lines go to this process's stdout or stderr, each
// with a prefix such as "[<role><local rank>]:", and never in parts: a line without an end follows when the stream
// ends, and a line of more than 64 KiB becomes several. The prefix has the rank's colour if the output is a terminal,
// unless $NO_COLOR is set. If nobody reads this process's output, teed ranks wait as soon as their pipes are full; the
// memory that Launch needs stays bounded. If this process's output is closed, the files go on. If a file cannot be
// written, as on a full disk, on_notice says so once for the file, and the lines go on. When all ranks have ended,
// Launch reads what their pipes hold and does not wait for processes that keep them open. A status that names a rank
// with such a file carries its last lines (RankFailure::stderr_lines).
//
// With max_restarts, a rank's failure ends all ranks as above, and then all start again: with
// TORCHELASTIC_RESTART_COUNT one higher, and a new MASTER_PORT unless master_port is set. They do not start again if a
// program cannot be executed, after a signal to this process, or if the last `restart_window` has had max_restarts
// restarts. The message then ends with "; after 3 restarts". If attempts fail within 10 s, one after another, the first
// restart comes at once, the second after 100 ms, and each further one after twice that time, up to 10 s. A signal ends
// this pause. After three such attempts or more, the last message says so: "; each of the last 4 attempts failed within
// 200ms".
//
// If every rank that still runs has been stopped (as by SIGSTOP) for `stopped_patience`, and another rank has ended,
// these ranks have failed. A rank that a debugger holds is not stopped in this sense. While all ranks run, their groups
// detect a stopped rank.
//
// With event_log, each event is one line of JSON at the end of that file, written by one write: attempt_started,
// rank_started, rank_ended, first_cause, restart (with the reason), generation (of ranks that join generations, with
// the reason of each but the first), notice (about the nodes of a job) and end, each with the time of the day (RFC
// 3339) and CLOCK_MONOTONIC in ns. A write that fails, as on a full disk, does not end the launch: on_notice says so
// once. Give each node its own file.
//
// SIGINT, SIGTERM, SIGHUP and SIGQUIT to this process are forwarded to the ranks, unless this process ignores them.
// SIGKILL follows after `grace`, or at once after a second signal. SIGUSR1 and SIGUSR2, with which schedulers ask a
// program to save, are forwarded too, and have no effect on Launch itself. Launch restores the handlers of these six
// signals before it returns. If the calling thread dies, however it dies, the ranks are killed (but not the processes
// that they started).
//
// Thread-safe. The process may have other threads and children, but must not ignore SIGCHLD or reap the ranks. Errors:
// InvalidArgument for bad options. NotFound or PermissionDenied if the program cannot be executed (no rank is left
// running). FailedPrecondition if log_dir or event_log cannot be written, or if numa_binding leaves a rank without a
// CPU. ResourceExhausted without free processes, descriptors or ports. Cancelled after a signal to this process, with
// the report of the lowest rank that wrote one. Aborted for a rank killed by a signal. For a rank that exited with an
// error, the code in its report (report.h), or Unknown. See also report/failure.h.
absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_SUPERVISOR_H_
