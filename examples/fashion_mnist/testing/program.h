// A program under test: started with its output in a file, watched, and ended with all it started.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_PROGRAM_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_PROGRAM_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::examples::testing {

class Program {
 public:
  // Starts argv[0] with this process's environment changed by `environment`. TORCH_DISTRIBUTED_DEBUG is OFF unless it
  // is there, so the program does not print which backend it uses.
  explicit Program(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment = {});
  // Kills it if it still runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // Its exit code, or 128 + signal; -1 if it has not ended within `limit`.
  int Wait(absl::Duration limit = absl::Seconds(60));

  // Standard output and standard error so far.
  std::string Output() const;

  // The processes it has started that run, by their RANK.
  std::map<int, pid_t> Ranks() const;

 private:
  pid_t pid_ = -1;
  int result_ = -1;
  std::string output_path_;
};

// Waits for it and returns its output; the exit code in `*code`.
std::string RunProgram(const std::vector<std::string>& argv, int* code,
                       const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep::examples::testing

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_TESTING_PROGRAM_H_
