// Starts the ranks of one node: torchrun's counterpart, with its names of flags and environment variables.
//
//   launch --nproc_per_node=2 program --epochs=1
//
// Its flags come first; what follows the program's name belongs to the program. See --help.

#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "lockstep/tools/launch/internal/command_line.h"
#include "lockstep/tools/launch/supervisor.h"

namespace {

namespace launch = lockstep::launch;

constexpr char kUsage[] =
    R"(usage: launch [FLAG]... PROGRAM [ARGUMENT]...

Starts the ranks of one node, watches over them and says which one failed first.

  launch --nproc_per_node=2 ./train --epochs=1
  launch --nproc_per_node=8 --nnodes=2 --node_rank=0 --master_addr=10.0.0.1 --master_port=29500 ./train   (on node 0)
  launch --nproc_per_node=8 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=29500 ./train   (on node 1)

Flags come before the program; --nproc_per_node=2, --nproc_per_node 2 and --nproc-per-node=2 are the same:
  --nproc_per_node  ranks to start on this node, or cpu for one a core; 1 unless given
  --nnodes          nodes that take part; 1 unless given
  --node_rank       which of the nodes this is, from 0; 0 unless given
  --master_addr     address of node 0; 127.0.0.1 unless given, needed with several nodes
  --master_port     port on node 0 where rank 0 listens; a free one unless given, needed with several nodes
  --grace           seconds that ranks have after SIGTERM, before SIGKILL; 2 unless given
  --help, -h        this text

Of torchrun's other flags these are taken: --standalone, --no_python, --rdzv_endpoint=HOST:PORT (the master's address and
port), --rdzv_id, --rdzv_backend=static and --max_restarts=0. The others are errors, which say what to do instead. So it is
with its variables: PET_NNODES=2 is --nnodes=2 where that is not given.

Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest of torchrun's variables in its environment.
When a rank fails the others get SIGTERM and, --grace seconds later, SIGKILL. SIGUSR1 and SIGUSR2 to this program go to the ranks.
The exit code is the failed rank's, or 128 + the signal that killed it; 2 for a mistake in the flags, 126 or 127 for a program that
cannot be executed, and 1 where a rank itself exited with one of these two.
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

int Fail(const absl::Status& status, int exit_code) {
  Print(status);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  absl::StatusOr<launch::internal::CommandLine> line =
      launch::internal::ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc), Environment());
  if (!line.ok()) return Fail(line.status(), 2);
  if (line->help) {
    std::cout << kUsage;
    return 0;
  }
  signal(SIGCHLD, SIG_DFL);  // if the parent ignored it, no exit code would be available
  line->options.on_failure = Print;
  const absl::Status status = launch::Launch(line->program, line->options);
  if (status.ok()) return 0;
  return Fail(status, absl::IsInvalidArgument(status) && !launch::FirstFailure(status) ? 2 : launch::ExitCode(status));
}
