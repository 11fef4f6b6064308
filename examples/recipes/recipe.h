// The frame of every recipe: its command line, its ranks, the checks of its numbers, and its exit code.

#ifndef LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_
#define LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// The main of a recipe. Parses the flags, calls `run`, prints its error and returns the exit code. --help prints
// `description`.
int RecipeMain(int argc, char** argv, const std::string& description, const std::function<absl::Status()>& run);

// Starts `ranks` processes, which form a group, and calls body(group) in each. Blocks until all have ended. Returns the
// error of the rank that failed first. LibTorch's exceptions become a status. If a launcher has started this process,
// it is one of the launcher's ranks, and nothing is started.
absl::Status OnRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body);

// The check of a claim. Internal, unless least <= value <= most.
absl::Status CheckNumber(absl::string_view name, double value, double least, double most);

// Prints `line` on rank 0.
void Say(const comm::ProcessGroup& group, const std::string& line);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_
