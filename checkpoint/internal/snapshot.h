// Copies of tensors in host memory that is kept from one save to the next: fresh memory costs more to touch first (one
// page fault per 4 KiB) than to fill.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_SNAPSHOT_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_SNAPSHOT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "absl/status/status.h"
#include "lockstep/checkpoint/internal/encoder.h"

namespace lockstep::checkpoint::internal {

class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Puts a copy on the host in place of each of the storages; the pickle goes on naming the devices that they came
  // from. The copies are valid until the next Take or the end of this object. What the current stream of a device was
  // given before has taken effect. ResourceExhausted where the memory cannot be had.
  absl::Status Take(EncodedValue& encoded);

  // Has the memory ready that Take needs for these, without a copy; what was taken before is gone.
  absl::Status Reserve(const EncodedValue& encoded);

  // Has the host's memory present, as its first use would. Takes seconds for some GiB.
  void Touch();

 private:
  absl::Status ReserveHost(size_t size);
  absl::Status ReservePinned(size_t size);

  char* host_ = nullptr;
  size_t host_size_ = 0;
  at::Tensor pinned_;  // for what comes from a device
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_SNAPSHOT_H_
