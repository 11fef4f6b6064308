// The words that `launch` takes instead of a program: status, top, drain, resize.

#ifndef LOCKSTEP_LAUNCH_STATUS_COMMANDS_H_
#define LOCKSTEP_LAUNCH_STATUS_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

// Returns whether `word` is a command if it is the first argument of `launch`.
bool IsCommand(const std::string& word);

// The command that `word` may mean.
std::optional<std::string> NearestCommand(const std::string& word);

// Runs the command args[0] and returns the exit code of the process: 0; 1 if there is no such job, or it does not do
// what it is asked; 2 for a mistake in the arguments.
int RunCommand(const std::vector<std::string>& args);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_COMMANDS_H_
