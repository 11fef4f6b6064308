#include "lockstep/base/command_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
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

// The C library flushes standard output at exit and ignores errors. `argument` is the program's name, and is deleted.
void CheckStandardOutput(int code, void* argument) {
  const std::unique_ptr<std::string> program(static_cast<std::string*>(argument));
  std::cout.flush();
  std::fflush(stdout);
  if (std::cout && std::ferror(stdout) == 0) return;
  std::cerr << absl::StrCat(*program, ": standard output could not be written\n");
  _exit(code == 0 ? 1 : code);
}

}  // namespace

std::vector<std::string> ParseCommandLine(int argc, char** argv, const ProgramUsage& usage) {
  const std::string program = argc > 0 ? FileName(argv[0]) : "";
  on_exit(CheckStandardOutput, new std::string(program));
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  absl::StatusOr<internal::ParsedArguments> parsed = internal::ParseArguments(arguments, usage);
  if (!parsed.ok()) {
    std::cerr << absl::StrCat(program, ": ", parsed.status().message(), "\n");
    std::exit(2);
  }
  if (parsed->help) {
    std::cout << internal::UsageText(program, usage, TerminalWidth()) << std::flush;
    std::exit(0);
  }
  return std::move(parsed->positional);
}

}  // namespace lockstep
