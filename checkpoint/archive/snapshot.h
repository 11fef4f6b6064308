// Copies of tensors in host memory that is kept from one save to the next: fresh memory costs more to touch first (one
// page fault per 4 KiB) than to fill.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_SNAPSHOT_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_SNAPSHOT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "absl/status/status.h"
#include "lockstep/checkpoint/archive/encoder.h"

namespace lockstep::checkpoint::archive {

class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Replaces each of the storages by a copy on the host. The pickle still names their original devices. The copies are
  // valid until the next Take or the destruction of this object. They include the effects of work queued before on a
  // device's current stream. ResourceExhausted: memory is not available.
  absl::Status Take(EncodedValue& encoded);

  // Allocates the memory that Take needs for these, without copying. Discards the previous copies.
  absl::Status Reserve(const EncodedValue& encoded);

  // Has the host's memory present, as its first use would. Takes seconds for some GiB.
  void Touch();

 private:
  absl::Status ReserveHost(size_t size);
  absl::Status ReservePinned(size_t size);

  char* host_ = nullptr;
  size_t host_size_ = 0;
  at::Tensor pinned_;  // for tensors on a device
};

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_SNAPSHOT_H_
