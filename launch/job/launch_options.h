// The processes that Launch() starts, and how it treats them (supervisor.h).
//
//   launch::LaunchOptions options;
//   options.nproc_per_node = 2;

#ifndef LOCKSTEP_LAUNCH_JOB_LAUNCH_OPTIONS_H_
#define LOCKSTEP_LAUNCH_JOB_LAUNCH_OPTIONS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/streams.h"  // IWYU pragma: export

namespace lockstep::launch {

class JobWatcher;

// The part of the machine that a local rank's CPUs share, as torchrun's --numa-binding.
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

  // Called once for each start, on the calling thread, if a rank has failed and the others have not ended one second
  // after SIGTERM. Its argument is a status like the one that Launch will return. The message says for which ranks it
  // waits, and how long.
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
  // If the ranks of a generation (launch/link) have completed no step for so long, the rank that the others wait for
  // gets SIGKILL, and counts as failed. At least 30 s: no rank says earlier that it waits.
  absl::Duration stall_timeout = absl::InfiniteDuration();
  // For the launch program: the folder of an empty cgroup of version 2. The ranks start in it, if the kernel allows
  // that. Where Launch sends SIGKILL, it kills the cgroup. The caller removes it. "": the ranks are in this process's
  // cgroup.
  std::string cgroup;
  // For the launch program: hears what happens to the job, and is polled together with the ranks. It must outlive the
  // call. Null: nobody.
  JobWatcher* watcher = nullptr;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_LAUNCH_OPTIONS_H_
