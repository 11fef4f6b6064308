#include "lockstep/launch/flags/flag_table.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/base/wrapped_text.h"
#include "lockstep/launch/flags/flag_values.h"
#include "lockstep/launch/flags/rendezvous_flags.h"

namespace lockstep::launch {
namespace {

constexpr size_t kIndent = 30, kWidth = 100;  // of --help
constexpr char kNeedless[] = "leave it out, it has nothing to act on here";

constexpr char kBeginning[] = R"(usage: launch [FLAG]... PROGRAM [ARGUMENT]...
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
variable PET_LOG_DIR=x if the flag is not given. Other flags of torchrun are errors that say why.
)";

constexpr char kEnd[] = R"(
Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest of torchrun's
variables in its environment. Its stdin is empty. If a rank fails, the others get SIGTERM and,
--grace seconds later, SIGKILL. When the ranks end, all that they started ends too, also daemons,
and also if this program gets SIGKILL. SIGUSR1 and SIGUSR2 to this program go to the ranks. The exit
code is the failed rank's, or 128 + the signal that killed the rank or this program; 2 for a mistake
in the flags, 126 or 127 for a program that cannot be executed, and 1 for any other failure, or if a
rank itself exited with 126 or 127.
)";

std::vector<Flag> RankFlags() {
  return {
      {"nproc_per_node", Flag::kValue, "N", SetRanks,
       "ranks to start on this node; 1 unless given. cpu: one a core. gpu: one for each NVIDIA device. auto: gpu if "
       "there is a device, else cpu"},
      {"role", Flag::kValue, "NAME", Set<&LaunchOptions::role>, "ROLE_NAME of the ranks; default unless given"},
      {"virtual_local_rank", Flag::kSwitch, nullptr, Set<&LaunchOptions::virtual_local_rank>,
       "LOCAL_RANK is 0 in every rank, and CUDA_VISIBLE_DEVICES has only the rank's device"},
      {"numa_binding", Flag::kValue, "WHAT", Set<&LaunchOptions::numa_binding>,
       "binds each rank to CPUs: node for a NUMA node, socket for its socket, exclusive for a share of its cores, "
       "core-complex for one of its L3 caches. The node is the one of the rank's GPU; without GPUs the ranks are "
       "spread over the nodes"},
  };
}

std::vector<Flag> NodeFlags() {
  return {
      {"nnodes", Flag::kValue, "N", SetNodes,
       "nodes that take part; 1 unless given. MIN:MAX: the ranks start with MIN nodes, and start again when others "
       "come"},
      {"node_rank", Flag::kValue, "N", Set<&RendezvousOptions::node_rank>,
       "which of the nodes this is, from 0; unless given, 0, and with tcp and etcd-v3 any"},
      {"rdzv_backend", Flag::kValue, "NAME", SetBackend,
       "how nodes find each other. static: they do not, so each gets these flags. tcp (or c10d): the launcher at the "
       "endpoint serves the others. etcd-v3: by servers of etcd. With tcp and etcd-v3 the ranks of all nodes start, "
       "end and restart together"},
      {"rdzv_endpoint", Flag::kValue, "HOST:PORT", /*set=*/nullptr,
       "tcp: a node and a free port on it; 29400 unless given. etcd-v3: a server or its URL, or several with commas "
       "between. static: the same as the next two. An IPv6 address with a port has brackets, as in [::1]:29400, or "
       "[fe80::1%eth0]:29400 if it is link-local. A job of one node is found there too: further launchers wait, and "
       "resize lets them take part. With tcp and port 0 nobody finds it"},
      {"master_addr", Flag::kValue, "HOST", SetHost<&LaunchOptions::master_addr>,
       "static: address of node 0; 127.0.0.1 unless given. Not used by a job that other nodes find by tcp or etcd-v3, "
       "which says so"},
      {"master_port", Flag::kValue, "PORT", Set<&LaunchOptions::master_port>,
       "static: port on node 0 where rank 0 listens; a free one unless given, needed with several nodes. Not used "
       "where --master_addr is not"},
      {"rdzv_id", Flag::kValue, "NAME", Set<&LaunchOptions::run_id>,
       "the job, so that others can use the same servers; none unless given. TORCHELASTIC_RUN_ID of the ranks"},
      {"rdzv_conf", Flag::kValue, "NAME=VALUE,...", SetParameters,
       "join_timeout: seconds until enough nodes must be there; 600 unless given. last_call_timeout: seconds to wait "
       "for more than MIN nodes at first; 30 unless given. ttl: seconds of silence after which a node ends its ranks; "
       "1.5 (tcp) or 4 (etcd-v3) unless given. is_host: whether this node serves (tcp). same_program=false: launchers "
       "with other programs or arguments are not refused. cacert, cert, key, user, password (etcd-v3). Accepted, "
       "without effect: close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, "
       "max_incremental_join, min_nodes, protocol, rank, read_timeout, store_type, timeout and use_libuv"},
      {"local_addr", Flag::kValue, "HOST", SetHost<&RendezvousOptions::local_addr>,
       "address of this node for the others; found unless given"},
      {"standalone", Flag::kSwitch, nullptr, /*set=*/nullptr,
       "one node that nobody finds, whatever the variables of a scheduler say"},
  };
}

std::vector<Flag> OutputFlags() {
  return {
      {"redirects", Flag::kValue, "N", Set<&LaunchOptions::redirects>,
       "streams that go to files instead: 0 none, 1 stdout, 2 stderr, 3 both; 0:3,1:2 means 3 for local rank 0 and 2 "
       "for local rank 1",
       'r'},
      {"tee", Flag::kValue, "N", Set<&LaunchOptions::tee>,
       "streams that go to files and, line by line, here: \"[default0]:text\" is a line of local rank 0 with the role "
       "\"default\"",
       't'},
      {"log_dir", Flag::kValue, "FOLDER", Set<&LaunchOptions::log_dir>,
       "where the files are; a new folder in $TMPDIR or /tmp unless given. The files are "
       "ID_xxxxxxxx/attempt_0/LOCAL_RANK/stdout.log and stderr.log, where ID is the --rdzv_id. Beside them is "
       "error.json of a rank that reported its error"},
      {"local_ranks_filter", Flag::kValue, "0,1", Set<&LaunchOptions::shown_local_ranks>,
       "shows the output of these local ranks only; of the others it is lost, unless it goes to a file"},
      {"duplicate_stdout_filters", Flag::kValue, "A,B", Set<&LaunchOptions::duplicate_stdout_filters>, ""},
      {"duplicate_stderr_filters", Flag::kValue, "A,B", Set<&LaunchOptions::duplicate_stderr_filters>,
       "teed lines with one of these texts are also in filtered_stdout.log or filtered_stderr.log of the attempt; "
       "\",,\" is a comma in a text"},
      {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", Flag::kVariable, "TEXT", nullptr,
       "variable: the prefix of teed lines, where ${role_name}, ${local_rank} and ${rank} are replaced; "
       "[${role_name}${local_rank}]: unless set"},
      {"event_log", Flag::kValue, "FILE", Set<&LaunchOptions::event_log>,
       "appends each event to the file, as one line of JSON: the start and the end of ranks, the first cause of a "
       "failure, restarts"},
  };
}

std::vector<Flag> FailureFlags() {
  return {
      {"max_restarts", Flag::kValue, "N", Set<&LaunchOptions::max_restarts>,
       "how often the ranks start again after a failure; 0 unless given. While they fail within 10 s, a pause of up to "
       "10 s comes before each start. If N is 0, programs whose ranks stay (launch/link) choose the number"},
      {"restart_window", Flag::kValue, "SECONDS", SetWindow,
       "counts only restarts of this time; of the whole job unless given"},
      {"spares", Flag::kValue, "N", Set<&LaunchOptions::spares>,
       "processes besides on each node, 0 unless given. They wait to take the place of a rank that fails, in programs "
       "whose ranks stay (launch/link)"},
      {"stall_timeout", Flag::kValue, "SECONDS", Set<&LaunchOptions::stall_timeout>,
       "after this time without a step, at least 30, the rank that the others wait for is killed and counts as failed, "
       "if ranks stay (launch/link)"},
      {"grace", Flag::kValue, "SECONDS", Set<&LaunchOptions::grace>,
       "time that ranks have after SIGTERM, before SIGKILL; 2 unless given"},
      {"shutdown_timeout", Flag::kAlias, "SECONDS", nullptr, "another name of --grace; the last one counts"},
      {"signals_to_handle", Flag::kValue, "NAMES", SetSignals,
       "accepted, without effect: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are always passed on"},
      {"monitor_interval", Flag::kValue, "SECONDS", CheckInterval,
       "accepted, without effect: the end of a rank is seen at once"},
  };
}

std::vector<Flag> ProgramFlags() {
  return {
      {"module", Flag::kSwitch, nullptr, nullptr, "PROGRAM is the name of a Python module", 'm'},
      {"run_path", Flag::kSwitch, nullptr, nullptr, "PROGRAM is a Python script, whatever its name"},
      {"no_python", Flag::kSwitch, nullptr, nullptr, "PROGRAM is started as it is"},
      {"use_env", Flag::kSwitch, nullptr, nullptr, "accepted, without effect: the local rank is in LOCAL_RANK"},
      {"no_use_env", Flag::kSwitch, nullptr, nullptr,
       "passes --local-rank=N too, before the program's arguments, as torch.distributed.launch does without --use_env"},
      {"PYTHON_EXEC", Flag::kVariable, "FILE", nullptr,
       "variable: the Python that starts all files that end in .py; python3 unless set"},
      {"start_method", Flag::kUnsupported, nullptr, nullptr, "leave it out, every rank is a new process"},
      {"event_log_handler", Flag::kUnsupported, nullptr, nullptr, kNeedless},
      {"logs_specs", Flag::kUnsupported, nullptr, nullptr, kNeedless},
  };
}

std::vector<Flag> Questions() {
  return {
      {"help", Flag::kQuestion, nullptr, nullptr, "this text", 'h'},
      {"version", Flag::kQuestion, nullptr, nullptr, "the version of Lockstep"},
  };
}

// The row that `is_wanted`, or the row before an alias that is.
template <typename Wanted>
const Flag* Find(const Wanted& is_wanted) {
  const Flag* before = nullptr;
  for (const FlagGroup& group : FlagGroups()) {
    for (const Flag& flag : group.flags) {
      if (flag.kind != Flag::kAlias) before = &flag;
      if (flag.kind != Flag::kVariable && is_wanted(flag)) return before;
    }
  }
  return nullptr;
}

std::string NamesOf(const Flag& flag) {
  return absl::StrCat("  ", flag.letter ? absl::StrCat("-", std::string(1, flag.letter), ", ") : "",
                      flag.kind == Flag::kVariable ? "" : "--", flag.name, flag.value ? "=" : "",
                      flag.value ? flag.value : "");
}

}  // namespace

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const groups = new std::vector<FlagGroup>{
      {"Ranks", RankFlags(), ""},
      {"Nodes", NodeFlags(),
       R"(  With srun --ntasks-per-node=1, flags that are not given come from the variables of Slurm. Under
  another scheduler of several nodes or processes, as mpirun, --nnodes or --standalone is needed.

Several nodes share a secret of at least 16 bytes: LOCKSTEP_JOB_SECRET, or a file that
LOCKSTEP_JOB_SECRET_FILE names and that other users can neither read nor write.
)"},
      {"Output of the ranks: this program's own, unless one of these is given", OutputFlags(), ""},
      {"Failures", FailureFlags(), ""},
      {"Program: Python (with -u) starts a file that ends in .py, unless it is executable and begins with #!",
       ProgramFlags(), ""},
      {"This program", Questions(), ""},
  };
  return *groups;
}

const Flag* FindFlag(const std::string& name) {
  return Find([&](const Flag& flag) { return name == flag.name; });
}

const Flag* FindShortFlag(char letter) {
  return Find([&](const Flag& flag) { return letter == flag.letter; });
}

std::vector<std::string> FlagNames() {
  std::vector<std::string> names;
  for (const FlagGroup& group : FlagGroups()) {
    for (const Flag& flag : group.flags) {
      if (flag.kind != Flag::kVariable) names.emplace_back(flag.name);
    }
  }
  return names;
}

std::string UsageText() {
  std::string text = kBeginning;
  for (const FlagGroup& group : FlagGroups()) {
    absl::StrAppend(&text, "\n", group.title, "\n");
    for (const Flag& flag : group.flags) {
      if (flag.kind != Flag::kUnsupported) absl::StrAppend(&text, Wrapped(NamesOf(flag), flag.help, kIndent, kWidth));
    }
    absl::StrAppend(&text, group.ending);
  }
  return text + kEnd;
}

}  // namespace lockstep::launch
