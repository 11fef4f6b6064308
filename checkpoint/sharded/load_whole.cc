#include "lockstep/checkpoint/sharded/load_whole.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/sharded/internal/entry_loader.h"
#include "lockstep/checkpoint/sharded/internal/unflatten.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"

namespace lockstep::checkpoint {
namespace {

absl::StatusOr<Value> LoadFrom(const std::string& directory, const LoadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardedMetadata metadata, ReadShardedMetadata(directory, options));
  ShardedStateDict state;
  for (const ShardedItem& item : metadata.items) state.push_back({KeyPath(item.path), Value()});
  internal::EntryLoader loader(directory, metadata, options);
  LOCKSTEP_RETURN_IF_ERROR(loader.Plan(state));
  LOCKSTEP_RETURN_IF_ERROR(loader.Read());
  std::vector<internal::PathAndValue> entries;
  for (const ShardedEntry& entry : state) entries.push_back({entry.path.steps(), std::get<Value>(entry.value)});
  absl::StatusOr<Value> nested = internal::Unflatten(entries, options.memory_limit / sizeof(Value));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(nested.status(), directory));
  return nested;
}

}  // namespace

absl::StatusOr<Value> LoadWhole(absl::string_view directory, const LoadOptions& options) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(directory, [&] { value = LoadFrom(std::string(directory), options); }));
  return value;
}

}  // namespace lockstep::checkpoint
