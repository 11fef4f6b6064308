// Reads parts of a sharded checkpoint's tensors, and its plain values, from the files that hold them.
//
//   ChunkReader reader("/data/step_1000", options);
//   LOCKSTEP_RETURN_IF_ERROR(reader.WantPart(item, box, &tensor));
//   LOCKSTEP_RETURN_IF_ERROR(reader.CheckFiles());
//   LOCKSTEP_RETURN_IF_ERROR(reader.Read());
//
// Each archive is read once, whoever wants it, in the order of the files; memory is that of the largest.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_READER_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_READER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/internal/byte_stream.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/box.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::internal {

class ChunkReader {
 public:
  ChunkReader(std::string directory, const LoadOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  // Read fills *to, a tensor of box.sizes that need not be there before, with that part of `item`, a tensor. DataLoss
  // where the checkpoint leaves out an element of it. `item` and `to` must outlive the reader.
  absl::Status WantPart(const ShardedItem& item, const Box& box, at::Tensor* to);

  // Read sets *to to `item`, a plain value.
  void WantValue(const ShardedItem& item, Value* to);

  // Whether every file that is wanted is there and as long as the items wanted from it need; so that what is allocated
  // for them afterwards is no more than the files hold.
  absl::Status CheckFiles() const;

  // On an error what was to be filled may be filled in part.
  absl::Status Read();

 private:
  struct Want {
    const ShardedItem* item;
    const ShardedChunk* chunk;
    // A part of a tensor: what the archive and `part`, the box that *tensor is, share.
    Box shared;
    Box part;
    at::Tensor* tensor;
    // Or a plain value.
    Value* value;
  };

  absl::StatusOr<ByteSource> Open(const Want& want) const;
  absl::StatusOr<Value> ReadChunk(const ByteSource& file, const Want& want) const;
  absl::Status Deliver(const Want& want, const Value& value) const;
  absl::Status Where(const Want& want, const absl::Status& status) const;

  const std::string directory_;
  const LoadOptions& options_;
  std::vector<Want> wants_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_READER_H_
