#include "lockstep/checkpoint/sharded/load_whole.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/sharded/internal/entry_loader.h"
#include "lockstep/checkpoint/sharded/internal/unflatten.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"

namespace lockstep::checkpoint {
namespace {

bool IsBelow(const std::vector<Value>& path, const std::vector<Value>& start) {
  return path.size() >= start.size() && std::equal(start.begin(), start.end(), path.begin(), Identical);
}

absl::Status NothingBelow(const ShardedMetadata& metadata, const KeyPath& below) {
  constexpr size_t kListed = 5;
  std::vector<std::string> first;
  for (const ShardedItem& item : metadata.items) {
    std::string step = KeyPath({item.path.front()}).ToString();
    if (std::find(first.begin(), first.end(), step) == first.end()) first.push_back(std::move(step));
  }
  const size_t listed = std::min(kListed, first.size());
  const std::string more = listed < first.size() ? absl::StrCat(" and ", first.size() - listed, " more") : "";
  return absl::NotFoundError(absl::StrCat(below.ToString(), ": the checkpoint has no item there; it has ",
                                          absl::StrJoin(first.begin(), first.begin() + listed, ", "), more));
}

absl::StatusOr<Value> LoadFrom(const std::string& directory, const LoadOptions& options, const KeyPath& below) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardedMetadata metadata, ReadShardedMetadata(directory, options));
  ShardedStateDict state;
  for (const ShardedItem& item : metadata.items) {
    if (IsBelow(item.path, below.steps())) state.push_back({KeyPath(item.path), Value()});
  }
  if (state.empty() && !below.steps().empty()) return Annotate(NothingBelow(metadata, below), directory);
  internal::EntryLoader loader(directory, metadata, options);
  LOCKSTEP_RETURN_IF_ERROR(loader.Plan(state));
  LOCKSTEP_RETURN_IF_ERROR(loader.Read());
  std::vector<internal::PathAndValue> entries;
  for (const ShardedEntry& entry : state) {
    const std::vector<Value>& path = entry.path.steps();
    if (path.size() == below.steps().size()) return std::get<Value>(entry.value);
    entries.push_back({{path.begin() + below.steps().size(), path.end()}, std::get<Value>(entry.value)});
  }
  absl::StatusOr<Value> nested = internal::Unflatten(entries, options.memory_limit / sizeof(Value));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(nested.status(), directory));
  return nested;
}

}  // namespace

absl::StatusOr<Value> LoadWhole(absl::string_view directory, const LoadOptions& options, const KeyPath& below) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(directory, [&] { value = LoadFrom(std::string(directory), options, below); }));
  return value;
}

}  // namespace lockstep::checkpoint
