#include "lockstep/base/command_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/string_view.h"
#include "lockstep/base/internal/flag_parser.h"
#include "lockstep/base/internal/usage_text.h"

namespace lockstep {
namespace {

size_t TerminalWidth() {
  constexpr size_t kDefault = 80, kNarrowest = 60, kWidest = 120;
  winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return std::min(std::max<size_t>(size.ws_col, kNarrowest), kWidest);
}

std::string FileName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

// Where buffers are flushed at the end of the process, nobody looks whether they were. `program` lives on.
void CheckStandardOutput(int code, void* program) {
  std::cout.flush();
  std::fflush(stdout);
  if (std::cout && std::ferror(stdout) == 0) return;
  std::cerr << *static_cast<std::string*>(program) << ": standard output could not be written" << std::endl;
  _exit(code == 0 ? 1 : code);
}

}  // namespace

std::vector<std::string> ParseCommandLine(int argc, char** argv, const ProgramUsage& usage) {
  const std::string program = argc > 0 ? FileName(argv[0]) : "";
  on_exit(CheckStandardOutput, new std::string(program));
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  absl::StatusOr<internal::ParsedArguments> parsed = internal::ParseArguments(arguments, usage);
  if (!parsed.ok()) {
    std::cerr << program << ": " << parsed.status().message() << std::endl;
    std::exit(2);
  }
  if (parsed->help) {
    std::cout << internal::UsageText(program, usage, TerminalWidth()) << std::flush;
    std::exit(0);
  }
  return std::move(parsed->positional);
}

}  // namespace lockstep
