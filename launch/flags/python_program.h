// The programs that launch starts with Python.

#ifndef LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_
#define LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_

#include <string>
#include <vector>

#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

// Returns the command of a rank: `program`, or Python's interpreter followed by it, as torchrun starts it. The flags
// module, run_path and no_python decide which. Without them, Python starts a file whose name ends in ".py", unless the
// file is executable and begins with "#!" and no interpreter is set. `interpreter` is $PYTHON_EXEC, "" if that is not
// set. Requires: `program` is not empty.
std::vector<std::string> CommandOf(const std::vector<std::string>& program, const GivenFlags& given,
                                   const std::string& interpreter);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_
