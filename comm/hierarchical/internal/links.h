#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LINKS_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LINKS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::hierarchical::internal {

// Precedes each piece of a tensor on a connection, so that ranks that disagree get an error instead of wrong numbers.
struct PieceHeader {
  enum class Kind : uint8_t { kAllReduce, kTreeScatter, kAllGather };

  uint64_t call = 0;      // the number of the call, of this group
  uint64_t elements = 0;  // of the whole tensor
  uint64_t bytes = 0;     // that follow
  uint32_t piece = 0;     // the number of the piece in the call
  uint16_t dtype = 0;
  uint8_t op = 0;    // of an all_reduce or a tree_scatter
  uint8_t kind = 0;  // a Kind

  bool operator==(const PieceHeader& other) const {
    return call == other.call && elements == other.elements && bytes == other.bytes && piece == other.piece &&
           dtype == other.dtype && op == other.op && kind == other.kind;
  }
};
static_assert(sizeof(PieceHeader) == 32, "a header has no padding");

// "piece 3 of all_reduce #12 (524288 bytes; float32 [6553600], sum)".
std::string Describe(const PieceHeader& header);

struct LinksOptions {
  int rank = 0;  // among the ranks that the links join
  int size = 1;
  std::vector<int> names;  // their numbers in the whole group, for messages
  int lanes = 1;           // connections between each two ranks
  std::string address;     // of this host, for the others; an IPv4 or IPv6 address
  std::function<absl::Status(const std::string& key, const std::string& value)> publish;
  std::function<absl::StatusOr<std::string>(const std::string& key, absl::Time deadline)> read;
  std::function<absl::Status()> check;  // an error ends the meeting
  absl::Time deadline;                  // for the meeting
};

// TCP connections between one rank and its counterparts on the other hosts, `lanes` to each. What one rank sends on a
// lane the other receives on that lane, in order.
//
// One thread may send on a lane while another receives on it. Abort() may be called from any thread.
class Links {
 public:
  // Meets the other ranks. A stranger who connects lacks the key that each rank publishes, and is sent away.
  // DeadlineExceeded names the ranks that did not connect. ResourceExhausted: no descriptors are free.
  static absl::StatusOr<std::unique_ptr<Links>> Create(const LinksOptions& options);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int lanes() const { return lanes_; }

  // Returns when the system has taken all bytes. DeadlineExceeded: after `timeout` it has not. Unavailable: the
  // connection broke. Aborted. Each names the peer.
  absl::Status Send(int peer, int lane, const PieceHeader& header, const void* data, std::chrono::milliseconds timeout);
  // Receives header.bytes bytes. Blocks and fails as Send() does. InvalidArgument: the peer sent another header.
  absl::Status Receive(int peer, int lane, const PieceHeader& header, void* data, std::chrono::milliseconds timeout);

  // Ends every Send() and Receive(), now and later.
  void Abort();

 private:
  Links(const LinksOptions& options, Event wake);
  absl::Status Wait(int fd, short events, std::chrono::steady_clock::time_point deadline, const char* doing, int peer);
  absl::Status Broken(const char* doing, int peer, int error) const;
  int Fd(int peer, int lane) const { return fds_[peer * lanes_ + lane].get(); }

  const int rank_, size_, lanes_;
  const std::vector<int> names_;
  std::vector<UniqueFd> fds_;  // invalid for this rank
  const Event wake_;           // readable once the links are aborted
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_LINKS_H_
