// Fills the entries of a state dict from a sharded checkpoint, in one process.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_ENTRY_LOADER_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_ENTRY_LOADER_H_

#include <ATen/core/Tensor.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/box.h"
#include "lockstep/checkpoint/sharded/internal/chunk_reader.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"

namespace lockstep::checkpoint::internal {

class EntryLoader {
 public:
  // All arguments must outlive the loader.
  EntryLoader(std::string directory, const ShardedMetadata& metadata, const LoadOptions& options)
      : directory_(std::move(directory)), metadata_(metadata), options_(options), reader_(directory_, options) {}

  // Checks that the checkpoint has what `state` wants, and touches no part of `state`. If `missing` is not null, it is
  // set to the names that the checkpoint does not have; otherwise these are errors.
  absl::Status Plan(ShardedStateDict& state, std::vector<std::string>* missing = nullptr);

  // Fills what Plan was given.
  absl::Status Read();

 private:
  // A tensor that is made here, for an entry that is None.
  struct Made {
    const ShardedItem* item;
    at::Tensor tensor;
    Value* entry;
  };

  absl::Status PlanEntry(const ShardedItem& item, ShardedEntry& entry);
  absl::Status PlanValue(const ShardedItem& item, Value& value);
  absl::Status PlanTensor(const ShardedItem& item, const std::vector<int64_t>& sizes, const Box& box,
                          const at::Tensor& tensor);
  absl::Status MakeTensors();

  const std::string directory_;
  const ShardedMetadata& metadata_;
  const LoadOptions& options_;
  ChunkReader reader_;
  std::deque<at::Tensor> given_;
  std::deque<Made> made_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_ENTRY_LOADER_H_
