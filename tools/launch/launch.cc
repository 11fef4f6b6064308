// Starts the ranks of one node: torchrun's counterpart, with its names of flags and environment variables.
//
//   launch --nproc_per_node=2 program --epochs=1
//
// Its flags come first; what follows the program's name belongs to the program. See --help.

#include <gflags/gflags.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/supervisor.h"

DEFINE_int32(nproc_per_node, 1, "ranks to start on this node");
DEFINE_int32(nnodes, 1, "nodes that take part");
DEFINE_int32(node_rank, 0, "which of the nodes this is");
DEFINE_string(master_addr, "", "address of node 0");
DEFINE_int32(master_port, 0, "port on node 0 where rank 0 listens");
DEFINE_int32(grace, 2, "seconds that ranks have after SIGTERM");

namespace {

namespace launch = lockstep::launch;

constexpr char kUsage[] =
    R"(Starts the ranks of one node, watches over them and says which one failed first.

  launch [flags] program [arguments of the program]

  launch --nproc_per_node=2 ./train --epochs=1
  launch --nproc_per_node=8 --nnodes=2 --node_rank=0 --master_addr=10.0.0.1 --master_port=29500 ./train   (on node 0)
  launch --nproc_per_node=8 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=29500 ./train   (on node 1)

Flags, which come before the program (--nproc_per_node=2, --nproc_per_node 2 and --nproc-per-node=2 are the same):
  --nproc_per_node  ranks to start on this node; 1 unless given
  --nnodes          nodes that take part; 1 unless given
  --node_rank       which of the nodes this is, from 0; 0 unless given
  --master_addr     address of node 0; 127.0.0.1 unless given, needed with several nodes
  --master_port     port on node 0 where rank 0 listens; a free one unless given, needed with several nodes
  --grace           seconds that ranks have after SIGTERM, before SIGKILL; 2 unless given
  --help            this text

Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest of torchrun's variables in its environment.
When a rank fails the others get SIGTERM and, --grace seconds later, SIGKILL. SIGUSR1 and SIGUSR2 to this program go to the ranks.
The exit code is the failed rank's, or 128 + the signal that killed it; 2 for a mistake in the flags, 126 or 127 for a program that
cannot be executed.
)";

constexpr const char* kFlags[] = {"nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "grace"};

struct CommandLine {
  bool help = false;
  std::vector<std::string> program;  // with its arguments
};

absl::Status SetFlag(const std::string& given, const std::string& name, const std::string& value) {
  if (!gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", given, " needs a whole number, not \"", value, "\""));
}

// Flags up to the first argument that is none; gflags' own parser would also take the program's.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args) {
  CommandLine line;
  size_t i = 0;
  for (; i < args.size() && args[i].size() > 1 && args[i][0] == '-'; ++i) {
    if (args[i] == "--") {
      ++i;
      break;
    }
    line.help = args[i] == "--help" || args[i] == "-h";
    if (line.help) return line;
    const size_t equals = args[i].find('=');
    const std::string given(absl::StripPrefix(absl::StripPrefix(args[i].substr(0, equals), "-"), "-"));
    std::string name = given;
    std::replace(name.begin(), name.end(), '-', '_');
    if (std::find(std::begin(kFlags), std::end(kFlags), name) == std::end(kFlags)) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag \"", args[i], "\"; --help lists the flags"));
    }
    if (equals == std::string::npos && i + 1 == args.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--", given, " needs a value"));
    }
    const std::string value = equals == std::string::npos ? args[++i] : args[i].substr(equals + 1);
    LOCKSTEP_RETURN_IF_ERROR(SetFlag(given, name, value));
  }
  line.program.assign(args.begin() + i, args.end());
  if (line.program.empty()) return absl::InvalidArgumentError("no program to launch; --help shows how");
  return line;
}

launch::LaunchOptions Options() {
  launch::LaunchOptions options;
  options.nproc_per_node = FLAGS_nproc_per_node;
  options.nnodes = FLAGS_nnodes;
  options.node_rank = FLAGS_node_rank;
  options.master_addr = FLAGS_master_addr;
  options.master_port = FLAGS_master_port;
  options.grace = absl::Seconds(FLAGS_grace);
  return options;
}

int Fail(const absl::Status& status, int exit_code) {
  std::cerr << "launch: " << absl::StripPrefix(status.message(), "launch: ") << std::endl;
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok()) return Fail(line.status(), 2);
  if (line->help) {
    std::cout << kUsage;
    return 0;
  }
  signal(SIGCHLD, SIG_DFL);  // whoever started us may have ignored it, and then no exit code could be had
  const absl::Status status = launch::Launch(line->program, Options());
  if (status.ok()) return 0;
  return Fail(status, absl::IsInvalidArgument(status) && !launch::FirstFailure(status) ? 2 : launch::ExitCode(status));
}
