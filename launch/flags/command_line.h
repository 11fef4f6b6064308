// The command line of the launch program: torchrun's flags and variables, as far as they are supported, and a few more.

#ifndef LOCKSTEP_LAUNCH_FLAGS_COMMAND_LINE_H_
#define LOCKSTEP_LAUNCH_FLAGS_COMMAND_LINE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/launch/flags/rendezvous_options.h"
#include "lockstep/launch/job/launch_options.h"

namespace lockstep::launch {

struct CommandLine {
  bool help = false, version = false;  // the rest is empty if one of them is true
  LaunchOptions options;
  RendezvousOptions rendezvous;
  std::vector<std::string> notices;  // about flags from a scheduler, or that have another effect than they say
  std::vector<std::string> program;  // with its arguments, and with Python in front if Python starts it
};

// `args` without launch's own name: flags up to the first argument that is not one, which is the program. As with
// torchrun the variables PET_NNODES, PET_NPROC_PER_NODE and so on count where the flag is not given; `environment` has
// all variables.
//
// Under srun, options about nodes that are not given come from its variables, unless nodes find each other by a
// rendezvous (scheduler.h).
//
// InvalidArgument, in one line, for what is unknown, wrong or not supported: of torchrun's flags and variables none is
// ignored, and the message says what to do instead. The same if a scheduler's variables say that there are several
// nodes, and neither nnodes nor standalone is given.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args,
                                             const std::map<std::string, std::string>& environment);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_COMMAND_LINE_H_
