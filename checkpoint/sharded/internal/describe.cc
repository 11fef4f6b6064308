#include <algorithm>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"
#include "lockstep/checkpoint/sharded/internal/save_plan.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::internal {
namespace {

absl::Status CheckPath(const std::vector<Value>& path, const std::string& name) {
  if (path.empty()) return absl::InvalidArgumentError("an empty path");
  for (const Value& step : path) {
    if (!step.is_string() && !(step.is_int() && step.int_value() >= 0))
      return absl::InvalidArgumentError(absl::StrCat("a path's steps are str and int, found ", step.type_name()));
  }
  if (!file::IsPythonText(name)) return absl::InvalidArgumentError("a name that is not UTF-8");
  return absl::OkStatus();
}

absl::Status AsArgument(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

absl::Status AddShard(const at::Tensor& tensor, Box box, ShardedItem& item) {
  LOCKSTEP_RETURN_IF_ERROR(tensors::DtypeOf(tensor).status());
  if (!item.chunks.empty() && item.dtype != tensor.scalar_type())
    return absl::InvalidArgumentError("its parts have several dtypes");
  LOCKSTEP_RETURN_IF_ERROR(AsArgument(CheckInside(box, item.sizes)));
  const bool all_empty = ElementsOf(item.sizes) == 0;
  if (all_empty && !item.chunks.empty()) return absl::OkStatus();
  if (!all_empty && ElementsOf(box.sizes) == 0) return absl::OkStatus();
  item.dtype = tensor.scalar_type();
  item.requires_grad = tensor.requires_grad();
  item.chunks.push_back({all_empty ? WholeBox(item.sizes) : std::move(box), "", 0, 0});
  return absl::OkStatus();
}

absl::Status CheckNoOverlap(const ShardedItem& item) {
  std::vector<Box> boxes;
  for (const ShardedChunk& chunk : item.chunks) boxes.push_back(chunk.box);
  const auto overlap = FindOverlap(boxes);
  if (!overlap) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its parts ", ToString(boxes[overlap->first]), " and ",
                                                 ToString(boxes[overlap->second]), " overlap"));
}

absl::Status AddShards(const ShardedTensor& tensor, ShardedItem& item) {
  item.sizes = tensor.sizes;
  LOCKSTEP_RETURN_IF_ERROR(AsArgument(CheckSizes(item.sizes)));
  for (const Shard& shard : tensor.shards) {
    Box box{shard.offsets, shard.tensor.defined() ? shard.tensor.sizes().vec() : std::vector<int64_t>()};
    LOCKSTEP_RETURN_IF_ERROR(AddShard(shard.tensor, std::move(box), item));
  }
  return CheckNoOverlap(item);
}

absl::Status AddValue(const Value& value, ShardedItem& item) {
  item.is_tensor = value.is_tensor();
  if (!item.is_tensor) {
    item.chunks.emplace_back();
    return absl::OkStatus();
  }
  if (value.tensor().defined()) item.sizes = value.tensor().sizes().vec();
  return AddShard(value.tensor(), WholeBox(item.sizes), item);
}

absl::Status DescribeEntry(const ShardedEntry& entry, ShardedItem& item) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPath(item.path, item.name));
  if (const Value* value = std::get_if<Value>(&entry.value)) return AddValue(*value, item);
  item.is_tensor = true;
  item.dtype = at::kByte;  // unused if there is no part
  return AddShards(std::get<ShardedTensor>(entry.value), item);
}

void MakeUpPlaces(ShardedMetadata& metadata) {
  int64_t offset = 0;
  for (ShardedItem& item : metadata.items) {
    for (ShardedChunk& chunk : item.chunks) {
      chunk.file = "planned";
      chunk.offset = offset;
      chunk.length = item.is_tensor ? ElementsOf(chunk.box.sizes) * c10::elementSize(item.dtype) : 1;
      offset += chunk.length;
    }
  }
}

}  // namespace

absl::StatusOr<ShardedMetadata> Describe(const ShardedStateDict& state) {
  ShardedMetadata metadata;
  absl::flat_hash_set<std::string> names;
  for (const ShardedEntry& entry : state) {
    ShardedItem item;
    item.path = entry.path.steps();
    const bool spelled = std::all_of(item.path.begin(), item.path.end(),
                                     [](const Value& step) { return step.is_int() || step.is_string(); });
    item.name = spelled ? entry.name() : entry.path.ToString();
    const std::string where = absl::StrCat("item \"", item.name, "\"");
    if (!names.insert(item.name).second) return absl::InvalidArgumentError(absl::StrCat(where, " occurs twice"));
    LOCKSTEP_RETURN_IF_ERROR(Annotate(DescribeEntry(entry, item), where));
    metadata.items.push_back(std::move(item));
  }
  MakeUpPlaces(metadata);
  return metadata;
}

}  // namespace lockstep::checkpoint::internal
