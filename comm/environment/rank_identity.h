// The identity of a rank: its name in errors, and the data to tell whether its process is still alive.

#ifndef LOCKSTEP_COMM_ENVIRONMENT_RANK_IDENTITY_H_
#define LOCKSTEP_COMM_ENVIRONMENT_RANK_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::comm {

struct RankIdentity {
  int rank = 0;
  std::string host;           // HostName()
  int pid = 0;                // in its pid namespace
  uint64_t start_time = 0;    // of the process, in clock ticks since boot: distinguishes processes with the same pid
  std::string boot_id;        // of the running kernel: the same for all containers of one machine
  std::string pid_namespace;  // as /proc/self/ns/pid names it
  std::string network_namespace;  // of the calling thread, as /proc/thread-self/ns/net names it
};

// The identity of this process, as `rank`. A field that cannot be read is empty.
RankIdentity IdentityOfThisProcess(int rank);

// "rank 1 (host a, pid 123)".
std::string NameOf(const RankIdentity& identity);

// Returns whether both run on one kernel and in one network namespace, so that they can share memory and an abstract
// Unix socket.
bool OnOneHost(const RankIdentity& a, const RankIdentity& b);

// Returns whether both run on one kernel and in one pid namespace, so that each can see whether the other lives.
bool SeeTheSameProcesses(const RankIdentity& a, const RankIdentity& b);

// Converts to and from one line of text. InvalidArgument: EncodeIdentity() did not write the text.
std::string EncodeIdentity(const RankIdentity& identity);
absl::StatusOr<RankIdentity> DecodeIdentity(absl::string_view text);

// How the process of `identity` ended: "died: signal 9 (Killed)", "exited with code 3", or "died" if the reason is no
// longer available. Empty if it still runs, or if this process cannot see it (another machine or pid namespace).
std::string FateOf(const RankIdentity& identity);

// FateOf() of a process that this one can see. It reads one file instead of three.
std::string FateOfVisible(const RankIdentity& identity);

// How a process ended, in the words of FateOf(), from the status of waitpid(); "died" without a status.
std::string DescribeEnd(std::optional<int> wait_status);

// Returns whether this process can see the process of `identity`, dead or alive.
bool IsVisible(const RankIdentity& identity);

// Returns whether the process of `identity` is stopped, as by SIGSTOP or a debugger. False if this process cannot see
// it.
bool IsStopped(const RankIdentity& identity);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_ENVIRONMENT_RANK_IDENTITY_H_
