#include "lockstep/launch/flags/python_program.h"

#include <unistd.h>

#include <fstream>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {
namespace {

bool StartsByItself(const std::string& program) {
  const absl::StatusOr<std::string> path = FindProgram(program);
  if (!path.ok()) return false;
  std::ifstream file(*path, std::ios::binary);
  return file.get() == '#' && file.get() == '!';
}

// A file that is not there is left to FindProgram, whose error names it.
bool IsPythons(const std::string& program, const GivenFlags& given, const std::string& interpreter) {
  if (Find(given, "module") || Find(given, "run_path")) return true;
  if (Find(given, "no_python") || !absl::EndsWith(program, ".py")) return false;
  if (interpreter.empty() && StartsByItself(program)) return false;
  return access(program.c_str(), R_OK) == 0;
}

}  // namespace

std::vector<std::string> CommandOf(const std::vector<std::string>& program, const GivenFlags& given,
                                   const std::string& interpreter) {
  if (!IsPythons(program[0], given, interpreter)) return program;
  std::vector<std::string> command = {interpreter.empty() ? "python3" : interpreter, "-u"};
  if (Find(given, "module")) command.push_back("-m");
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace lockstep::launch
