#include "lockstep/examples/recipes/recipe.h"

#include <gflags/gflags.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/command_line.h"
#include "lockstep/comm/init_process_group.h"

DEFINE_double(timeout, 60, "The time limit in seconds for the meeting of the ranks, and for each collective.");
DEFINE_double(off_by, 0, "Added to every number that the recipe checks. The recipe must then fail.");

namespace lockstep::examples {

int RecipeMain(int argc, char** argv, const std::string& description, const std::function<absl::Status()>& run,
               const std::string& source) {
  ProgramUsage usage;
  usage.source = source;
  usage.description = description;
  usage.groups = {{"Flags of each recipe", {"off_by", "timeout"}}};
  return ExampleMain(argc, argv, usage, {}, run);
}

int RecipeMain(int argc, char** argv, const std::string& description, int ranks,
               const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  return RecipeMain(argc, argv, description, [&] { return OnRanks(ranks, body); });
}

absl::Status OnRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  return OnRanks(ranks, {.timeout = absl::Seconds(FLAGS_timeout)}, body);
}

absl::Status CheckNumber(absl::string_view name, double value, double least, double most) {
  value += FLAGS_off_by;
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(name, " is ", value, ", expected ",
                   least == most ? absl::StrCat(least) : absl::StrCat("a number from ", least, " to ", most)));
}

}  // namespace lockstep::examples
