#include "lockstep/tools/launch/internal/python_program.h"

#include <unistd.h>

#include <fstream>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "lockstep/tools/launch/internal/process.h"

namespace lockstep::launch::internal {
namespace {

bool StartsByItself(const std::string& program) {
  const absl::StatusOr<std::string> path = FindProgram(program);
  if (!path.ok()) return false;
  std::ifstream file(*path, std::ios::binary);
  return file.get() == '#' && file.get() == '!';
}

// A file that is not there is left to FindProgram, whose error names it.
bool IsPythons(const std::string& program, const PythonUse& use) {
  if (use.module || use.script) return true;
  if (use.never || !absl::EndsWith(program, ".py")) return false;
  if (use.interpreter.empty() && StartsByItself(program)) return false;
  return access(program.c_str(), R_OK) == 0;
}

}  // namespace

std::vector<std::string> CommandOf(const std::vector<std::string>& program, const PythonUse& use) {
  if (!IsPythons(program[0], use)) return program;
  std::vector<std::string> command = {use.interpreter.empty() ? "python3" : use.interpreter, "-u"};
  if (use.module) command.push_back("-m");
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace lockstep::launch::internal
