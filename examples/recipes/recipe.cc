#include "lockstep/examples/recipes/recipe.h"

#include <cstdlib>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"

DEFINE_double(timeout, 60, "The time limit in seconds for the meeting of the ranks, and for each collective.");
DEFINE_double(off_by, 0, "Added to every number that the recipe checks. The recipe must then fail.");

namespace lockstep::examples {
namespace {

absl::Status AsRank(const std::function<absl::Status(comm::ProcessGroup&)>& body) {
  comm::InitOptions options;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = body(*group); });
  status.Update(thrown);
  // Rank 0 serves the store, so it must not end before the others have used it.
  if (status.ok()) status = group->Barrier();
  return FinishRank(group.get(), status);
}

}  // namespace

int RecipeMain(int argc, char** argv, const std::string& description, const std::function<absl::Status()>& run) {
  // Lockstep reports a closed connection in one line. LibTorch would log it again, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = description;
  ParseCommandLine(argc, argv, usage);
  absl::Status status = CheckSeconds("timeout", FLAGS_timeout);
  if (status.ok()) status = run();
  const absl::string_view path = argv[0];
  if (!status.ok()) std::cerr << absl::StrCat(path.substr(path.rfind('/') + 1), ": ", status.message(), "\n");
  return launch::ExitCode(status);
}

absl::Status OnRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  return launch::SpawnUnlessLaunched(ranks, [&](int) { return AsRank(body); });
}

absl::Status CheckNumber(absl::string_view name, double value, double least, double most) {
  value += FLAGS_off_by;
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(name, " is ", value, ", expected ",
                   least == most ? absl::StrCat(least) : absl::StrCat("a number from ", least, " to ", most)));
}

void Say(const comm::ProcessGroup& group, const std::string& line) {
  if (group.rank() == 0) std::cout << line << std::endl;
}

}  // namespace lockstep::examples
