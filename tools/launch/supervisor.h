// Starts the ranks of one node and supervises them: the library of //tools/launch and Spawn.
//
//   launch::LaunchOptions options;
//   options.nproc_per_node = 2;
//   const absl::Status status = launch::Launch({"./train", "--epochs=1"}, options);
//   // "rank 1 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL); the other rank was ended"

#ifndef LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
#define LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/failure.h"  // IWYU pragma: export
#include "lockstep/tools/launch/streams.h"  // IWYU pragma: export

namespace lockstep::launch {

namespace internal {
class JobWatcher;
}  // namespace internal

// What the local ranks' CPUs share, as torchrun's --numa-binding.
enum class NumaBinding {
  kNone,         // ranks run wherever this process may run
  kNode,         // a rank runs on the CPUs of one NUMA node
  kSocket,       // on the CPUs of all NUMA nodes of one socket
  kExclusive,    // on its own share of the cores of one NUMA node
  kCoreComplex,  // on the CPUs of one NUMA node that share one last-level cache
};

struct LaunchOptions {
  int nproc_per_node = 1;   // number of ranks that this call starts
  int spares = 0;           // processes besides, which wait until a rank fails; see Launch()
  int nnodes = 1;           // number of nodes; Launch must be called on each
  int node_rank = 0;        // index of this node
  std::string master_addr;  // rank 0's address; may be empty with one node: 127.0.0.1
  int master_port = 0;      // port of rank 0's store; may be 0 with one node: a free port is chosen
  std::string run_id = "none";
  // If set, "--local-rank=<LOCAL_RANK>" is inserted into the rank's arguments before this one, as the old
  // torch.distributed.launch does.
  std::optional<int> local_rank_argument;
  std::string role = "default";     // ROLE_NAME of the ranks, and a part of the prefix of lines that `tee` shows
  bool virtual_local_rank = false;  // LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES has the device of the local rank alone
  absl::Duration grace = absl::Seconds(2);              // time from SIGTERM to SIGKILL
  absl::Duration stopped_patience = absl::Seconds(10);  // how long ranks may be stopped after the others have ended
  NumaBinding numa_binding = NumaBinding::kNone;        // the CPUs of the ranks
  std::optional<absl::Duration> failure_grace;          // the same after a rank has failed; default: `grace`
  std::map<std::string, std::string> environment;       // set in every rank; overrides the launcher's variables

  // Streams that go to files instead of this process's output, and streams that go to both. Both kinds of files are
  // <log_dir>/<run_id>_<8 random characters>/attempt_<restarts so far>/<local rank>/stdout.log and stderr.log. If
  // log_dir is empty, it is a new folder in $TMPDIR or /tmp, and on_notice gets its name.
  // A rank that fails with a report leaves it beside them, in error.json. A log_dir that is given has that file also
  // without these streams.
  RankStreams redirects, tee;
  std::string log_dir;
  // Lines of teed streams that contain one of the texts are also in attempt_<restarts so far>/filtered_stdout.log or
  // filtered_stderr.log, with their prefix.
  std::vector<std::string> duplicate_stdout_filters, duplicate_stderr_filters;
  // The prefix of teed lines: ${role_name}, ${local_rank} and ${rank} are replaced.
  std::string log_line_prefix_template = "[${role_name}${local_rank}]:";
  std::set<int> shown_local_ranks;  // if not empty, the output of other ranks goes to files only, or is discarded

  std::string event_log;  // a file to which events are appended, as JSON; "": none

  int max_restarts = 0;                                      // how often failed ranks are started again; one node only
  absl::Duration restart_window = absl::InfiniteDuration();  // a restart that is older than this no longer counts

  // Called on the calling thread with one line about the folder of the files, about a file that cannot be written,
  // about each restart, and about processes that SIGKILL did not end after success.
  std::function<void(const std::string&)> on_notice;

  // Called once for each start, on the calling thread, if a rank has failed and the others have not ended one second after SIGTERM.
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
  // For the launch program: the pid of an ancestor of this process that is a child subreaper (PR_SET_CHILD_SUBREAPER)
  // and reaps its children. When the ranks end, all its descendants do, also those in other sessions, except for this
  // process. 0: Launch ends the processes in the ranks' process groups.
  pid_t subreaper = 0;
  // If the ranks of a generation (agent_link) have completed no step for so long, the rank that the others wait for
  // gets SIGKILL, and counts as failed. At least 30 s: no rank says earlier that it waits.
  absl::Duration stall_timeout = absl::InfiniteDuration();
  // For the launch program: the folder of an empty cgroup of version 2. The ranks start in it, if the kernel allows that.
  // Where Launch sends SIGKILL, it kills the cgroup. The caller removes it. "": the ranks are in this process's cgroup.
  std::string cgroup;
  // For the launch program: hears what happens to the job, and is polled together with the ranks. It must outlive the
  // call. Null: nobody.
  internal::JobWatcher* watcher = nullptr;
};

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
// rank that a signal such as SIGKILL or SIGSEGV killed. Then the earliest failure counts, with two exceptions. A rank killed by a signal precedes ranks that exited, since peers exit within
// milliseconds of another rank's death. And a rank that failed because its group failed, as comm's process groups
// report (report.h), comes last: without another failure, Launch waits for up to 5 s for the real cause, while ranks
// still run. After success too, processes left in a rank's group are ended. So nothing is left running, except for
// processes that moved to another session; `subreaper` includes those.
//
// Ranks that join generations (agent_link) stay when another one fails, unless there are several nodes: all of the above
// does not hold for them once the first generation has formed. The rank that failed is started again, and meanwhile the others go on. Each of the
// `spares` is a process more, which starts when a rank of the node has asked for a generation. It joins too, and takes the place of a rank that fails at once. It has a LOCAL_RANK from
// nproc_per_node on. It must use no device before it has joined: then it gets the local rank, and so the device, of the
// rank that failed. numa_binding does not bind spares.
//
// With numa_binding, each rank and all its threads run on CPUs of one NUMA node: of the node of the visible GPU that has
// the number of its local rank, if the host has that many visible GPUs. Otherwise the ranks are spread over the nodes,
// neighbours together, in proportion to the nodes' cores. CPUs that are offline, or on which this process may not run,
// are left out. Memory is not bound: Linux takes it from the node where a thread runs.
//
// Ranks whose output is neither redirected nor teed have this process's stdout and stderr, and nothing is between. A
// teed stream is a pipe. Its bytes go to the file as they are. Its lines go to this process's stdout or stderr, each
// with a prefix such as "[<role><local rank>]:", and never in parts: a line without an end follows when the stream ends, and a
// line of more than 64 KiB becomes several. The prefix has the rank's colour if the output is a terminal, unless
// $NO_COLOR is set. If nobody reads this process's output, teed ranks wait as soon as their pipes are full; the memory
// that Launch needs stays bounded. If this process's output is closed, the files go on. If a file cannot be written, as
// on a full disk, on_notice says so once for the file, and the lines go on. When all ranks have ended, Launch reads
// what their pipes hold and does not wait for processes that keep them open. A status that names a rank with such a file
// carries its last lines (RankFailure::stderr_lines).
//
// With max_restarts, a rank's failure ends all ranks as above, and then all start again: with TORCHELASTIC_RESTART_COUNT
// one higher, and a new MASTER_PORT unless master_port is set. They do not start again if a program cannot be executed,
// after a signal to this process, or if the last `restart_window` has had max_restarts restarts. The message then ends
// with "; after 3 restarts". If attempts fail within 10 s, one after another, the first restart comes at once, the
// second after 100 ms, and each further one after twice that time, up to 10 s. A signal ends this pause. After three
// such attempts or more, the last message says so: "; each of the last 4 attempts failed within 200ms".
//
// If every rank that still runs has been stopped (as by SIGSTOP) for `stopped_patience`, and another rank has ended,
// these ranks have failed. A rank that a debugger holds is not stopped in this sense. While all ranks run, their groups
// detect a stopped rank.
//
// With event_log, each event is one line of JSON at the end of that file, written by one write: attempt_started,
// rank_started, rank_ended, first_cause, restart (with the reason), generation (of ranks that join generations, with the
// reason of each but the first), notice (about the nodes of a job) and end, each with the time of the day (RFC 3339) and CLOCK_MONOTONIC in
// ns. A write that fails, as on a full disk, does not end the launch: on_notice says so once. Give each node its own
// file.
//
// SIGINT, SIGTERM, SIGHUP and SIGQUIT to this process are forwarded to the ranks, unless this process ignores them.
// SIGKILL follows after `grace`, or at once after a second signal. SIGUSR1 and SIGUSR2, with which schedulers ask a
// program to save, are forwarded too, and have no effect on Launch itself. Launch restores the handlers of these six
// signals before it returns. If the calling thread dies, however it dies, the ranks are killed (but not the processes
// that they started).
//
// Thread-safe. The process may have other threads and children, but must not ignore SIGCHLD or reap the ranks. Errors:
// InvalidArgument for bad options. NotFound or PermissionDenied if the program cannot be executed (no rank is left
// running). FailedPrecondition if log_dir or event_log cannot be written, or if numa_binding leaves a rank without a CPU. ResourceExhausted without free processes, descriptors or
// ports. Cancelled after a signal to this process,
// with the report of the lowest rank that wrote one. Aborted for a rank killed by a signal. For a rank that exited with
// an error, the code in its report (report.h), or Unknown. See also failure.h.
absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options = {});

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
