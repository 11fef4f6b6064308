// Who a rank is: what the other ranks call it in their errors, and what they need to tell whether it still lives.

#ifndef LOCKSTEP_COMM_WATCH_RANK_IDENTITY_H_
#define LOCKSTEP_COMM_WATCH_RANK_IDENTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace lockstep::comm {

struct RankIdentity {
  int rank = 0;
  std::string host;               // gethostname()
  int pid = 0;                    // in its own pid namespace
  uint64_t start_time = 0;        // of the process, in clock ticks since boot: tells a reused pid from the first
  std::string boot_id;            // of the running kernel: the same for all containers of one machine
  std::string pid_namespace;      // as /proc/self/ns/pid names it
  std::string network_namespace;  // of the calling thread, as /proc/thread-self/ns/net names it
};

// This process as `rank`. Facts that cannot be read are left empty.
RankIdentity IdentityOfThisProcess(int rank);

// "rank 1 (host a, pid 123)".
std::string NameOf(const RankIdentity& identity);

// Whether both run under one kernel and in one network namespace, so that they can share memory and meet at an abstract
// Unix socket.
bool OnOneHost(const RankIdentity& a, const RankIdentity& b);

// One line of text, and back. InvalidArgument for text that EncodeIdentity() did not write.
std::string EncodeIdentity(const RankIdentity& identity);
absl::StatusOr<RankIdentity> DecodeIdentity(absl::string_view text);

// What has become of `identity`'s process, seen from this one: "died: signal 9 (Killed)", "exited with code 3", or
// "died" where the reason cannot be seen any more; empty while it runs, or where it cannot be seen from here (another
// machine or pid namespace).
std::string FateOf(const RankIdentity& identity);

// The same from the status that waitpid() gives; "died" without one.
std::string DescribeEnd(absl::optional<int> wait_status);

// Whether `identity`'s process, dead or alive, can be seen from this one.
bool IsVisible(const RankIdentity& identity);

// Whether `identity`'s process is stopped, as by SIGSTOP or a debugger; false where that cannot be seen from here.
bool IsStopped(const RankIdentity& identity);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WATCH_RANK_IDENTITY_H_
