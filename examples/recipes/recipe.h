// The frame of every recipe: its command line, its ranks, the checks of its numbers, and its exit code.

#ifndef LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_
#define LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/ranks/frame.h"  // IWYU pragma: export

namespace lockstep::examples {

// The main of a recipe. Parses the flags, calls `run`, prints its error and returns the exit code. --help prints
// `description`. `source`: __FILE__ of a recipe with its own flags.
int RecipeMain(int argc, char** argv, const std::string& description, const std::function<absl::Status()>& run,
               const std::string& source = "");

// Calls OnRanks(ranks, body) as its `run`.
int RecipeMain(int argc, char** argv, const std::string& description, int ranks,
               const std::function<absl::Status(comm::ProcessGroup& group)>& body);

// As OnRanks() of frame.h, with --timeout.
absl::Status OnRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body);

// The check of a claim. Internal, unless least <= value <= most.
absl::Status CheckNumber(absl::string_view name, double value, double least, double most);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RECIPES_RECIPE_H_
