// Runs a program under test with its output in a file, and ends it with all processes that it started.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_TESTING_PROGRAM_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_TESTING_PROGRAM_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::examples::testing {

class Program {
 public:
  // Starts argv[0] with this process's environment changed by `environment`. TORCH_DISTRIBUTED_DEBUG defaults to OFF,
  // so that the program does not print its backend.
  explicit Program(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment = {});
  // Kills the program if it still runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // Returns its exit code, or 128 + signal; -1 if it has not ended within `limit`.
  int Wait(absl::Duration limit = absl::Seconds(60));

  // Standard output and standard error so far.
  std::string Output() const;

  // Waits, and returns whether the output has these texts within a minute, each behind the one before it.
  bool AwaitTexts(const std::vector<std::string>& texts) const;
  bool AwaitText(const std::string& text) const { return AwaitTexts({text}); }

  // The running processes that it has started, by their RANK.
  std::map<int, pid_t> Ranks() const;

 private:
  pid_t pid_ = -1;
  int result_ = -1;
  std::string output_path_;
};

// Runs a program to its end, for at most 3 minutes, and returns its output. Sets `*code` to the exit code.
std::string RunProgram(const std::vector<std::string>& argv, int* code,
                       const std::map<std::string, std::string>& environment = {});

// Runs a program, which must fail within 20 s, not by a signal, with one line that has `message`.
void ExpectError(const std::vector<std::string>& argv, const std::string& message,
                 const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep::examples::testing

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_TESTING_PROGRAM_H_
