// The programs that launch starts with Python.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_PYTHON_PROGRAM_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_PYTHON_PROGRAM_H_

#include <string>
#include <vector>

namespace lockstep::launch::internal {

struct PythonUse {
  bool module = false;      // the program is the name of a module
  bool script = false;      // the program is a script, whatever its name
  bool never = false;       // the program is started as it is
  std::string interpreter;  // $PYTHON_EXEC; empty: not set
};

// The command of a rank: `program`, which is not empty, or Python's interpreter with it, as torchrun starts it. Python
// starts a file whose name ends in ".py", unless it is executable and begins with "#!" and no interpreter is set.
std::vector<std::string> CommandOf(const std::vector<std::string>& program, const PythonUse& use);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_PYTHON_PROGRAM_H_
