// One rank's file of a sharded checkpoint: .pt archives, one after another.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_WRITER_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/sharded/box.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::internal {

class ChunkWriter {
 public:
  // Nothing is written before the first Write. `sync` and `system` are AtomicFile's.
  ChunkWriter(std::string directory, std::string name, bool sync, file::FileSystem& system)
      : directory_(std::move(directory)), name_(std::move(name)), sync_(sync), system_(system) {}

  // Appends an archive of `value` and returns its position. Only a tensor's own elements are written, from the CPU: a
  // tensor on a device, or a view of a part of a larger memory, is copied first. As in DCP, an archive begins where the
  // previous one ended, so its data is aligned only relative to the archive.
  absl::StatusOr<ShardedChunk> Write(const Value& value, Box box);

  // Puts the file in place, if anything was written.
  absl::Status Commit();

  // Removes what Commit put in place.
  void Remove();

 private:
  absl::Status Append(const Value& value);

  const std::string directory_;
  const std::string name_;
  const bool sync_;
  file::FileSystem& system_;
  std::unique_ptr<file::AtomicFile> file_;
  int64_t position_ = 0;
  bool committed_ = false;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_WRITER_H_
