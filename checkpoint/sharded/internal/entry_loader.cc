#include "lockstep/checkpoint/sharded/internal/entry_loader.h"

#include <ATen/ops/empty.h>

#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"

namespace lockstep::checkpoint::internal {

absl::Status EntryLoader::PlanTensor(const ShardedItem& item, const std::vector<int64_t>& sizes, const Box& box,
                                     const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("an undefined tensor");
  if (!item.is_tensor) return absl::InvalidArgumentError("the checkpoint has a plain value there, not a tensor");
  if (item.sizes != sizes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has ", ToString(item.sizes), ", wanted is ", ToString(sizes)));
  }
  const absl::Status inside = CheckInside(box, sizes);
  if (!inside.ok()) return absl::InvalidArgumentError(inside.message());
  return reader_.WantPart(item, box, &given_.emplace_back(tensor));
}

absl::Status EntryLoader::PlanValue(const ShardedItem& item, Value& value) {
  if (value.is_tensor()) {
    std::vector<int64_t> sizes = value.tensor().defined() ? value.tensor().sizes().vec() : std::vector<int64_t>();
    return PlanTensor(item, sizes, WholeBox(sizes), value.tensor());
  }
  if (!item.is_tensor) {
    reader_.WantValue(item, &value);
    return absl::OkStatus();
  }
  if (!value.is_none()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has a tensor ", ToString(item.sizes), " there, wanted is ", value.type_name()));
  }
  Made& made = made_.emplace_back(Made{&item, at::Tensor(), &value});
  return reader_.WantPart(item, WholeBox(item.sizes), &made.tensor);
}

absl::Status EntryLoader::PlanEntry(const ShardedItem& item, ShardedEntry& entry) {
  if (Value* value = std::get_if<Value>(&entry.value)) return PlanValue(item, *value);
  const ShardedTensor& sharded = std::get<ShardedTensor>(entry.value);
  for (const Shard& shard : sharded.shards) {
    const Box box{shard.offsets, shard.tensor.defined() ? shard.tensor.sizes().vec() : std::vector<int64_t>()};
    LOCKSTEP_RETURN_IF_ERROR(PlanTensor(item, sharded.sizes, box, shard.tensor));
  }
  return absl::OkStatus();
}

absl::Status EntryLoader::Plan(ShardedStateDict& state, std::vector<std::string>* missing) {
  if (missing) missing->clear();
  absl::flat_hash_map<std::string, const ShardedItem*> items;
  for (const ShardedItem& item : metadata_.items) items.emplace(item.name, &item);
  for (ShardedEntry& entry : state) {
    const std::string name = entry.name();
    const auto item = items.find(name);
    if (item == items.end() && missing) {
      missing->push_back(name);
      continue;
    }
    if (item == items.end())
      return absl::NotFoundError(
          absl::StrCat(directory_, ": item \"", name, "\": the checkpoint has none of this name"));
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(PlanEntry(*item->second, entry), absl::StrCat(directory_, ": item \"", name, "\"")));
  }
  return reader_.CheckFiles();
}

absl::Status EntryLoader::MakeTensors() {
  if (made_.empty()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, options_.map_location.Map(c10::Device(c10::kCPU)));
  for (Made& made : made_) {
    LOCKSTEP_ASSIGN_OR_RETURN(made.tensor, TorchStatusOr(absl::StrCat("item \"", made.item->name, "\""), [&] {
                                return at::empty(made.item->sizes, at::TensorOptions(device).dtype(made.item->dtype));
                              }));
  }
  return absl::OkStatus();
}

absl::Status EntryLoader::Read() {
  LOCKSTEP_RETURN_IF_ERROR(Annotate(MakeTensors(), directory_));
  LOCKSTEP_RETURN_IF_ERROR(reader_.Read());
  for (Made& made : made_) *made.entry = Value(made.tensor);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::internal
