// Reads the arguments for ParseCommandLine.

#ifndef LOCKSTEP_BASE_INTERNAL_FLAG_PARSER_H_
#define LOCKSTEP_BASE_INTERNAL_FLAG_PARSER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/command_line.h"

namespace lockstep::internal {

struct ParsedArguments {
  bool help = false;  // --help was given; flags after it are not read
  std::vector<std::string> positional;
};

// Sets the flags in `arguments`, which do not include the program's name. InvalidArgument: the first mistake. The flags
// before it are set.
absl::StatusOr<ParsedArguments> ParseArguments(const std::vector<std::string>& arguments, const ProgramUsage& usage);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_BASE_INTERNAL_FLAG_PARSER_H_
