// The memory that the ranks of one host share: an anonymous file that goes with the last process that maps it.

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

// What the ranks tell each other before they share memory: a key-value store with keys for this use alone. `get` blocks
// until the key is there or the deadline. `check`, if there is one, is asked every 250 ms by a rank that waits for
// others: an error ends the wait.
struct Exchange {
  std::function<absl::Status(const std::string& key, const std::string& value)> set;
  std::function<absl::StatusOr<std::string>(const std::string& key, absl::Time deadline)> get;
  std::function<absl::Status()> check = nullptr;
};

// A mapping of the same memfd in every rank. It has no name in any file system, so nothing is left behind whatever the
// ranks die of. Pages exist once they are touched, on the NUMA node of the rank that touches them first, in huge pages
// where the kernel gives them for shared memory.
class Segment {
 public:
  // Rank 0 makes the file, of `bytes` (halved until the system maps it, but no less than `least`), runs
  // initialise(data, bytes) on it, and hands its descriptor to the others over an abstract Unix socket, whose name and
  // token go through `exchange`. Blocks until every rank has it. DeadlineExceeded naming the ranks that did not come,
  // FailedPrecondition where memory cannot be had, ResourceExhausted where descriptors cannot.
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
