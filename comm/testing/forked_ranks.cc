#include "lockstep/comm/testing/forked_ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm::testing {

Gate::Gate() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
}

void Gate::Open() { write_end_.Close(); }

void Gate::AwaitOpen() const {
  char byte;
  while (read(read_end_.get(), &byte, 1) > 0) continue;
}

absl::StatusOr<Master> ListenForRanks() {
  Master master;
  LOCKSTEP_ASSIGN_OR_RETURN(master.listener, internal::BindListenSocket("127.0.0.1", 0));
  LOCKSTEP_ASSIGN_OR_RETURN(master.port, internal::BoundPort(master.listener.get()));
  return master;
}

absl::StatusOr<Process::Line> AwaitLineOf(int rank, Process& process, const std::string& prefix,
                                          absl::Duration patience) {
  const std::optional<Process::Line> line = process.AwaitLine("", patience);
  if (!line) return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " did not say \"", prefix, "\""));
  if (absl::StartsWith(line->text, prefix)) return *line;
  return absl::InternalError(absl::StrCat("rank ", rank, " said \"", line->text, "\" and not \"", prefix, "\""));
}

}  // namespace lockstep::comm::testing
