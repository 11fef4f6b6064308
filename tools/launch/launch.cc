// Starts the ranks of a node: torchrun's counterpart, with its names of flags and environment variables.
//
//   launch --nproc_per_node=2 program --epochs=1
//
// Its flags come first; what follows the program's name belongs to the program. See --help.

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/agent/internal/run_job.h"
#include "lockstep/tools/launch/agent/internal/shared_lease.h"
#include "lockstep/tools/launch/internal/command_line.h"
#include "lockstep/tools/launch/internal/host_name.h"
#include "lockstep/tools/launch/internal/job_cgroup.h"
#include "lockstep/tools/launch/internal/keeper.h"
#include "lockstep/tools/launch/internal/outcome.h"
#include "lockstep/tools/launch/status/internal/commands.h"
#include "lockstep/tools/launch/status/internal/job_status.h"
#include "lockstep/tools/launch/status/internal/status_service.h"
#include "lockstep/tools/launch/supervisor.h"

namespace {

namespace launch = lockstep::launch;

constexpr size_t kLongestProgram = 500;  // of what people see of a job

constexpr char kUsage[] =
    R"(usage: launch [FLAG]... PROGRAM [ARGUMENT]...
       launch status|top|drain|resize [ARGUMENT]...

Starts the ranks of a node, watches over them and says which one failed first. Or shows a job that
runs, or takes a node out of it.

  launch --nproc_per_node=2 ./train --epochs=1
  launch --nproc_per_node=gpu --tee=3 --log_dir=logs --max_restarts=3 train.py
  launch --nproc_per_node=8 --nnodes=2 --rdzv_backend=tcp --rdzv_endpoint=10.0.0.1 ./train

Jobs that run on this host (launch status --help tells more)
  status [PID|JOB]            shows the job and its ranks: once, with --json as JSON
  top [PID|JOB]               the same twice a second; q quits
  drain [PID|JOB] [HOST]      takes this node, or another host of the job, out of the job, and waits
                              until it has left
  resize [PID|JOB] MIN:MAX    changes the number of nodes that a job with tcp or etcd-v3 has
  These are commands if they are the first argument. A program of this name starts with its path, as
  in launch ./status, or after --, as in launch -- status.

Flags come before the program. --log_dir=x, --log-dir=x and --log_dir x are the same, and so is the
variable PET_LOG_DIR=x if the flag is not given.

Ranks
  --nproc_per_node=N          ranks to start on this node; 1 unless given. cpu: one a core. gpu: one
                              for each NVIDIA device. auto: gpu if there is a device, else cpu
  --role=NAME                 ROLE_NAME of the ranks; default unless given
  --virtual_local_rank        LOCAL_RANK is 0 in every rank, and CUDA_VISIBLE_DEVICES has only the
                              rank's device
  --numa_binding=WHAT         binds each rank to CPUs: node for a NUMA node, socket for its socket,
                              exclusive for a share of its cores, core-complex for one of its L3
                              caches. The node is the one of the rank's GPU; without GPUs the ranks
                              are spread over the nodes

Nodes
  --nnodes=N                  nodes that take part; 1 unless given. MIN:MAX: the ranks start with
                              MIN nodes, and start again when others come
  --node_rank=N               which of the nodes this is, from 0; unless given, 0, and with tcp and
                              etcd-v3 any
  --rdzv_backend=NAME         how nodes find each other. static: they do not, so each gets these
                              flags. tcp (or c10d): the launcher at the endpoint serves the others.
                              etcd-v3: by servers of etcd. With tcp and etcd-v3 the ranks of all
                              nodes start, end and restart together
  --rdzv_endpoint=HOST:PORT   tcp: a node and a free port on it; 29400 unless given. etcd-v3: a
                              server or its URL, or several with commas between. static: the same as
                              the next two. An IPv6 address with a port has brackets, as in
                              [::1]:29400, or [fe80::1%eth0]:29400 if it is link-local. A job of one
                              node is found there too: further launchers wait, and resize lets them
                              take part. With tcp and port 0 nobody finds it
  --master_addr=HOST          static: address of node 0; 127.0.0.1 unless given. Not used by a job
                              that other nodes find by tcp or etcd-v3, which says so
  --master_port=PORT          static: port on node 0 where rank 0 listens; a free one unless given,
                              needed with several nodes. Not used where --master_addr is not
  --rdzv_id=NAME              the job, so that others can use the same servers; none unless given.
                              TORCHELASTIC_RUN_ID of the ranks
  --rdzv_conf=NAME=VALUE,...  join_timeout: seconds until enough nodes must be there; 600 unless
                              given. last_call_timeout: seconds to wait for more than MIN nodes at
                              first; 30 unless given. ttl: seconds of silence after which a node
                              ends its ranks; 1.5 (tcp) or 4 (etcd-v3) unless given. is_host:
                              whether this node serves (tcp). same_program=false: launchers with
                              other programs or arguments are not refused. cacert, cert, key, user,
                              password (etcd-v3). Accepted, without effect: close_timeout,
                              heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt,
                              max_incremental_join, min_nodes, protocol, rank, read_timeout,
                              store_type, timeout and use_libuv
  --local_addr=HOST           address of this node for the others; found unless given
  --standalone                one node that nobody finds, whatever the variables of a scheduler say
  With srun --ntasks-per-node=1, flags that are not given come from the variables of Slurm. Under
  another scheduler of several nodes or processes, as mpirun, --nnodes or --standalone is needed.

Several nodes share a secret of at least 16 bytes: LOCKSTEP_JOB_SECRET, or a file that
LOCKSTEP_JOB_SECRET_FILE names and that other users can neither read nor write.

Output of the ranks: this program's own, unless one of these is given
  -r, --redirects=N           streams that go to files instead: 0 none, 1 stdout, 2 stderr, 3 both;
                              0:3,1:2 means 3 for local rank 0 and 2 for local rank 1
  -t, --tee=N                 streams that go to files and, line by line, here: "[default0]:text" is
                              a line of local rank 0 with the role "default"
  --log_dir=FOLDER            where the files are; a new folder in $TMPDIR or /tmp unless given. The
                              files are ID_xxxxxxxx/attempt_0/LOCAL_RANK/stdout.log and stderr.log,
                              where ID is the --rdzv_id. Beside them is error.json of a rank that
                              reported its error
  --local_ranks_filter=0,1    shows the output of these local ranks only; of the others it is lost,
                              unless it goes to a file
  --duplicate_stdout_filters=A,B
  --duplicate_stderr_filters=A,B
                              teed lines with one of these texts are also in filtered_stdout.log or
                              filtered_stderr.log of the attempt; ",," is a comma in a text
  TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=TEXT
                              variable: the prefix of teed lines, where ${role_name}, ${local_rank}
                              and ${rank} are replaced; [${role_name}${local_rank}]: unless set
  --event_log=FILE            appends each event to the file, as one line of JSON: the start and the
                              end of ranks, the first cause of a failure, restarts

Failures
  --max_restarts=N            how often the ranks start again after a failure; 0 unless given. While
                              they fail within 10 s, a pause of up to 10 s comes before each start.
                              If N is 0, programs whose ranks stay (agent_link) choose the number
  --restart_window=SECONDS    counts only restarts of this time; of the whole job unless given
  --spares=N                  processes besides on each node, 0 unless given. They wait to take the
                              place of a rank that fails, in programs whose ranks stay (agent_link)
  --stall_timeout=SECONDS     after this time without a step, at least 30, the rank that the others
                              wait for is killed and counts as failed, if ranks stay (agent_link)
  --grace=SECONDS             time that ranks have after SIGTERM, before SIGKILL; 2 unless given
  --shutdown_timeout=SECONDS  another name of --grace; the last one counts
  --signals_to_handle=NAMES   accepted, without effect: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1
                              and SIGUSR2 are always passed on
  --monitor_interval=SECONDS  accepted, without effect: the end of a rank is seen at once

Program: Python (with -u) starts a file that ends in .py, unless it is executable and begins with #!
  -m, --module                PROGRAM is the name of a Python module
  --run_path                  PROGRAM is a Python script, whatever its name
  --no_python                 PROGRAM is started as it is
  --use_env                   accepted, without effect: the local rank is in LOCAL_RANK
  --no_use_env                passes --local-rank=N too, before the program's arguments, as
                              torch.distributed.launch does without --use_env
  PYTHON_EXEC=FILE            variable: the Python that starts all files that end in .py; python3
                              unless set

  --help, -h                  this text

torchrun's other flags and variables are errors, which say what to do instead.

Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest of torchrun's
variables in its environment. Its stdin is empty. If a rank fails, the others get SIGTERM and,
--grace seconds later, SIGKILL. When the ranks end, all that they started ends too, also daemons,
and also if this program gets SIGKILL. SIGUSR1 and SIGUSR2 to this program go to the ranks. The exit
code is the failed rank's, or 128 + the signal that killed the rank or this program; 2 for a mistake
in the flags, 126 or 127 for a program that cannot be executed, and 1 for any other failure, or if a
rank itself exited with 126 or 127.
)";

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

void Print(const absl::Status& status) {
  std::cerr << "launch: " << absl::StripPrefix(status.message(), "launch: ") << std::endl;
}

void PrintNotice(const std::string& notice) { std::cerr << "launch: " << notice << std::endl; }

// What the rank that failed wrote last, if that is in a file.
void PrintStderrOf(const absl::Status& status) {
  const auto failure = launch::FirstFailure(status);
  if (!failure || failure->stderr_lines.empty()) return;
  std::cerr << "launch: the last lines of " << failure->stderr_file << ":\n";
  for (const std::string& line : failure->stderr_lines) std::cerr << "  " << line << "\n";
  std::cerr << std::flush;
}

// What does not change while the job runs. `pid` is the one that users know.
launch::internal::JobStatus JobOf(const launch::internal::CommandLine& line, pid_t pid) {
  launch::internal::JobStatus job;
  job.job_id = line.options.run_id;
  job.host = launch::internal::HostName();
  job.pid = pid;
  job.program = absl::StrJoin(line.program, " ").substr(0, kLongestProgram);
  job.started = absl::Now();
  job.grace = line.options.failure_grace.value_or(line.options.grace);
  job.max_restarts = line.options.max_restarts;
  job.meets_others = line.rendezvous.meets_others;
  job.min_nodes = job.meets_others ? line.rendezvous.min_nodes : line.options.nnodes;
  job.max_nodes = job.meets_others ? line.rendezvous.max_nodes : line.options.nnodes;
  if (line.options.nnodes > 1 || job.meets_others) return job;
  launch::internal::HostStatus host;
  host.host = job.host;
  host.ranks = line.options.nproc_per_node;
  job.hosts.push_back(host);
  return job;
}

// A word that is not a program may be a command.
absl::Status WithNearestCommand(const absl::Status& status, const std::string& first_word, const std::string& program) {
  const bool may_be_command = first_word == program && !absl::StrContains(program, '/');
  const std::optional<std::string> command = launch::internal::NearestCommand(program);
  if (!may_be_command || !command || !absl::IsNotFound(status) || launch::FirstFailure(status)) return status;
  return launch::internal::WithEnding(status, absl::StrCat("; did you mean launch ", *command, "?"));
}

// Otherwise a descriptor of the launcher would be the stdout of its ranks.
void OpenClosedStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number, which is `fd`
  }
}

// A reader of stderr that is gone does not end this program, nor its ranks. The handler, which exec removes, does not
// change what the signal does to the ranks.
void SurviveClosedOutput() {
  struct sigaction action;
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_DFL) signal(SIGPIPE, [](int) {});
}

absl::Status RunRanks(pid_t known_pid, launch::internal::CommandLine* line, launch::internal::SharedLease* lease) {
  launch::internal::StatusService service(JobOf(*line, known_pid), PrintNotice);
  line->options.watcher = &service;
  if (!line->rendezvous.meets_others) return launch::Launch(line->program, line->options);
  return launch::internal::RunJob(line->program, line->options, line->rendezvous, lease);
}

}  // namespace

int main(int argc, char** argv) {
  OpenClosedStreams();
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (!args.empty() && launch::internal::IsCommand(args[0])) return launch::internal::RunCommand(args);
  absl::StatusOr<launch::internal::CommandLine> line = launch::internal::ParseCommandLine(args, Environment());
  if (!line.ok()) {
    Print(line.status());
    return 2;
  }
  if (line->help) {
    std::cout << kUsage;
    return 0;
  }
  signal(SIGCHLD, SIG_DFL);  // if the parent ignored it, no exit code would be available
  const pid_t known_pid = getpid();
  const launch::internal::JobCgroup cgroup = launch::internal::CreateJobCgroup();
  line->options.cgroup = cgroup.folder;
  launch::internal::SharedLease lease;
  const absl::StatusOr<pid_t> keeper = launch::internal::ForkLauncher(
      argc, argv, line->options.cgroup, [&] { return launch::internal::EndLease(line->rendezvous, lease.Get()); });
  if (!keeper.ok()) {
    Print(keeper.status());
    launch::internal::RemoveJobCgroup(line->options.cgroup, absl::Seconds(1));
    return launch::ExitCode(keeper.status());
  }
  line->options.subreaper = *keeper;
  SurviveClosedOutput();
  for (const std::string& notice : line->notices) PrintNotice(notice);
  line->options.on_failure = Print;
  line->options.on_notice = PrintNotice;
  const absl::Status status = RunRanks(known_pid, &*line, &lease);
  if (status.ok()) return 0;
  Print(WithNearestCommand(status, args[0], line->program[0]));
  PrintStderrOf(status);
  return absl::IsInvalidArgument(status) && !launch::FirstFailure(status) ? 2 : launch::ExitCode(status);
}
