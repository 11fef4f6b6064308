#include "lockstep/ddp/bucket_layout_value.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp {
namespace {

using checkpoint::Value;

absl::StatusOr<std::vector<std::string>> Names(const Value& bucket) {
  if (!bucket.is_list()) return absl::InvalidArgumentError("buckets: expected a list of lists of parameters' names");
  std::vector<std::string> names;
  for (const Value& name : bucket.items()) {
    if (!name.is_string()) return absl::InvalidArgumentError("buckets: expected names that are strings");
    names.push_back(name.string_value());
  }
  return names;
}

}  // namespace

Value ToValue(const BucketLayout& layout, int world_size) {
  std::vector<Value> buckets;
  for (const std::vector<std::string>& bucket : layout)
    buckets.push_back(Value::List(std::vector<Value>(bucket.begin(), bucket.end())));
  return Value::Dict({{"world_size", world_size}, {"buckets", Value::List(std::move(buckets))}});
}

absl::StatusOr<BucketLayout> ToBucketLayout(const Value& value, int world_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t ranks, checkpoint::GetInt(value, "world_size"));
  const Value* const buckets = value.Find("buckets");
  if (!buckets || !buckets->is_list()) return absl::InvalidArgumentError("buckets: expected a list");
  BucketLayout layout;
  if (ranks != world_size) return layout;
  for (const Value& bucket : buckets->items()) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> names, Names(bucket));
    layout.push_back(std::move(names));
  }
  return layout;
}

}  // namespace lockstep::ddp
