// Parts of tests that fork many ranks: what holds them back, and the address where they meet.

#ifndef LOCKSTEP_COMM_TESTING_FORKED_RANKS_H_
#define LOCKSTEP_COMM_TESTING_FORKED_RANKS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {

// Holds back the processes that were forked after it until the process that made it opens it.
class Gate {
 public:
  Gate();

  // Closes this process's end. Each forked process must do so as well, since it has a copy.
  void Open();
  void AwaitOpen() const;

 private:
  UniqueFd read_end_, write_end_;
};

// A socket that rank 0 inherits and serves the store at, on the loopback interface.
struct Master {
  UniqueFd listener;
  int port = 0;
};

absl::StatusOr<Master> ListenForRanks();

// The next line of `rank`'s process, which must begin with `prefix`: any other line is the error that it met.
absl::StatusOr<Process::Line> AwaitLineOf(int rank, Process& process, const std::string& prefix,
                                          absl::Duration patience);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_FORKED_RANKS_H_
