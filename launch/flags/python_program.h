// The programs that launch starts with Python.

#ifndef LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_
#define LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_

#include <string>
#include <vector>

#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

// The command of a rank: `program`, which is not empty, or Python's interpreter with it, as torchrun starts it. The
// flags module, run_path and no_python say which. Otherwise Python starts a file whose name ends in ".py", unless it is
// executable and begins with "#!" and no interpreter is set. `interpreter` is $PYTHON_EXEC; "": not set.
std::vector<std::string> CommandOf(const std::vector<std::string>& program, const GivenFlags& given,
                                   const std::string& interpreter);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_PYTHON_PROGRAM_H_
