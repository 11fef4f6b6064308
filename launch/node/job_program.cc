#include "lockstep/launch/node/job_program.h"

#include <sys/stat.h>

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/crypto/crypto.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {
namespace {

// A post has the words, and there are many posts.
constexpr size_t kMostBytes = 4096;
constexpr off_t kLargestScript = off_t{256} << 20;

std::string HashOf(const std::string& path) {
  const auto fd = OpenRegularFile(path);
  return fd.ok() ? crypto::Sha256OfFile(fd->get()) : "";
}

bool MayBeScript(const std::string& argument) {
  struct stat status;
  return !absl::StartsWith(argument, "-") && stat(argument.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size <= kLargestScript;
}

// Leaves out what a post has no room for, except for its hash.
void Shorten(JobProgram* program) {
  size_t bytes = 0, kept = 0;
  while (kept < program->words.size() && bytes + program->words[kept].size() <= kMostBytes) {
    bytes += program->words[kept++].size();
  }
  if (kept == program->words.size()) return;
  const std::vector<std::string> others(program->words.begin() + static_cast<std::ptrdiff_t>(kept),
                                        program->words.end());
  program->words.resize(kept);
  program->words.push_back(absl::StrCat(others.size(), " more words with the hash ",
                                        absl::BytesToHexString(crypto::HmacSha256("", absl::StrJoin(others, "\n")))));
  if (program->script >= kept) program->script = 0;
}

}  // namespace

JobProgram ReadJobProgram(const std::vector<std::string>& argv) {
  JobProgram program;
  program.words = argv;
  for (size_t i = 1; i < argv.size() && program.script == 0; ++i) {
    if (MayBeScript(argv[i])) program.script = i;
  }
  if (program.script > 0) program.script_hash = HashOf(argv[program.script]);
  const bool is_of_host = program.script > 0 && !absl::StrContains(argv[0], '/');
  const absl::StatusOr<std::string> path = FindProgram(argv[0]);
  if (path.ok() && !is_of_host) program.program_hash = HashOf(*path);
  Shorten(&program);
  return program;
}

}  // namespace lockstep::launch
