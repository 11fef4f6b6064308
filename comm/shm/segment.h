// The memory shared by the ranks of one host: an anonymous file, which disappears with the last process that maps it.

#ifndef LOCKSTEP_COMM_SHM_SEGMENT_H_
#define LOCKSTEP_COMM_SHM_SEGMENT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::comm::shm {

// A key-value store through which the ranks communicate before they share memory. Its keys must be for this use only.
// `get` blocks until the key exists or the deadline passes. If `check` is set, a rank that waits for the shared memory,
// or hands it out, calls it every 20 ms, and an error ends the wait. So it must not send the store a request.
struct Exchange {
  std::function<absl::Status(const std::string& key, const std::string& value)> set;
  std::function<absl::StatusOr<std::string>(const std::string& key, absl::Time deadline)> get;
  std::function<absl::Status()> check = nullptr;
};

// A mapping of the same memfd in every rank. It has no name in any file system, so nothing is left behind, however a
// rank dies. A page is allocated when it is first touched, on the NUMA node of the rank that touches it, and as a huge
// page if the kernel supports them for shared memory.
class Segment {
 public:
  // Rank 0 creates the file with `bytes` (halved until the system can map it, but at least `least`), runs
  // initialise(data, bytes) on it, and passes its descriptor to the others over an abstract Unix socket, whose name and
  // token it puts into `exchange`. Blocks until every rank has it. DeadlineExceeded: ranks did not come; the message
  // names them. FailedPrecondition: memory is not available. ResourceExhausted: no free descriptors.
  static absl::StatusOr<std::unique_ptr<Segment>> Share(
      int rank, int size, size_t bytes, size_t least, const Exchange& exchange, absl::Time deadline,
      const std::function<void(char* data, size_t bytes)>& initialise);
  ~Segment();

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Segment(char* data, size_t bytes) : data_(data), bytes_(bytes) {}
  static absl::StatusOr<std::unique_ptr<Segment>> Map(int fd, size_t bytes);
  static absl::StatusOr<std::unique_ptr<Segment>> MapAsMuchAsPossible(int fd, size_t bytes, size_t least);

  char* const data_;
  const size_t bytes_;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_SEGMENT_H_
