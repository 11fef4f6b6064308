// The frame of an example: its command line, its ranks and its exit code.

#ifndef LOCKSTEP_EXAMPLES_RANKS_FRAME_H_
#define LOCKSTEP_EXAMPLES_RANKS_FRAME_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/command_line.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// The main of an example. Parses the flags, of which those in `positive` must be 1 or more. If the program has a flag
// --timeout, it must be a positive number of seconds. Calls `run`, prints its error in one line after the program's
// name, and returns the exit code. LibTorch's exceptions become a status.
int ExampleMain(int argc, char** argv, const ProgramUsage& usage, const std::vector<std::string>& positive,
                const std::function<absl::Status()>& run);

// Starts `ranks` processes, which form a group, and calls body(group) in each. Blocks until all have ended. Returns the
// error of the rank that failed first. LibTorch's exceptions become a status. If a launcher has started this process,
// it is one of the launcher's ranks, and nothing is started.
absl::Status OnRanks(int ranks, const comm::InitOptions& options,
                     const std::function<absl::Status(comm::ProcessGroup& group)>& body);

// Calls work(), for a program that creates the group itself. LibTorch's exceptions become a status. FinishRank() tells
// the other ranks of an error.
absl::Status AsRank(comm::ProcessGroup* group, const std::function<absl::Status()>& work);

// Prints `line` on rank 0.
void Say(const comm::ProcessGroup& group, const std::string& line);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_FRAME_H_
