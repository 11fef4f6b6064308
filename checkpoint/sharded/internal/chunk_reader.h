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
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/box.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::internal {

class ChunkReader {
 public:
  ChunkReader(std::string directory, const LoadOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  // Makes Read fill *to with that part of `item`, a tensor. *to becomes a tensor of box.sizes and need not be defined
  // before. DataLoss: the checkpoint leaves out an element of the part. `item` and `to` must outlive the reader.
  absl::Status WantPart(const ShardedItem& item, const Box& box, at::Tensor* to);

  // Read sets *to to `item`, a plain value.
  void WantValue(const ShardedItem& item, Value* to);

  // Checks that every needed file exists and is long enough for the needed items, so that later allocations do not
  // exceed the contents of the files.
  absl::Status CheckFiles() const;

  // After an error some tensors may be filled.
  absl::Status Read();

 private:
  struct Want {
    const ShardedItem* item;
    const ShardedChunk* chunk;
    // For a part of a tensor: the intersection of the archive's box and `part`, which is the box of *tensor.
    Box shared;
    Box part;
    at::Tensor* tensor;
    // Or a plain value.
    Value* value;
  };

  absl::StatusOr<file::ByteSource> Open(const Want& want) const;
  absl::StatusOr<Value> ReadChunk(const file::ByteSource& file, const Want& want) const;
  absl::Status Deliver(const Want& want, const Value& value) const;
  absl::Status Where(const Want& want, const absl::Status& status) const;

  const std::string directory_;
  const LoadOptions& options_;
  std::vector<Want> wants_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_CHUNK_READER_H_
