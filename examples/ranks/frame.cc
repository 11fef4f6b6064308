#include "lockstep/examples/ranks/frame.h"

#include <gflags/gflags.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::examples {
namespace {

absl::Status CheckFlags(const std::vector<std::string>& positive) {
  for (const std::string& flag : positive) {
    const std::string value = gflags::GetCommandLineFlagInfoOrDie(flag.c_str()).current_value;
    LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{flag, std::stod(value), 1}}));
  }
  gflags::CommandLineFlagInfo timeout;
  if (!gflags::GetCommandLineFlagInfo("timeout", &timeout)) return absl::OkStatus();
  return CheckSeconds("timeout", std::stod(timeout.current_value));
}

// Runs f(). LibTorch's exceptions become a status.
absl::Status StatusOf(const std::function<absl::Status()>& f) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = f(); });
  status.Update(thrown);
  return status;
}

absl::Status InGroup(const comm::InitOptions& options, const std::function<absl::Status(comm::ProcessGroup&)>& body) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  return AsRank(group.get(), [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(body(*group));
    return group->Barrier();  // rank 0 serves the store, so it must not end before the others have used it
  });
}

}  // namespace

int ExampleMain(int argc, char** argv, const ProgramUsage& usage, const std::vector<std::string>& positive,
                const std::function<absl::Status()>& run) {
  // Lockstep reports a closed connection in one line. LibTorch would log it again, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  ParseCommandLine(argc, argv, usage);
  absl::Status status = CheckFlags(positive);
  if (status.ok()) status = StatusOf(run);
  const absl::string_view path = argv[0];
  if (!status.ok()) std::cerr << absl::StrCat(path.substr(path.rfind('/') + 1), ": ", status.message(), "\n");
  return launch::ExitCode(status);
}

absl::Status OnRanks(int ranks, const comm::InitOptions& options,
                     const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  return launch::SpawnUnlessLaunched(ranks, [&](int) { return InGroup(options, body); });
}

absl::Status AsRank(comm::ProcessGroup* group, const std::function<absl::Status()>& work) {
  return FinishRank(group, StatusOf(work));
}

void Say(const comm::ProcessGroup& group, const std::string& line) {
  if (group.rank() == 0) std::cout << line << std::endl;
}

}  // namespace lockstep::examples
