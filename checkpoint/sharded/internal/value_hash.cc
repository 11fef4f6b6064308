#include "lockstep/checkpoint/sharded/internal/value_hash.h"

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/tensors/dtype.h"
#include "lockstep/checkpoint/zip/crc32.h"

namespace lockstep::checkpoint::internal {
namespace {

class Hasher {
 public:
  absl::StatusOr<uint32_t> Of(const Value& value) {
    const void* const identity = value.identity();
    const auto known = identity ? known_.find(identity) : known_.end();
    if (known != known_.end()) return known->second;
    LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t hash, Contents(value));
    if (identity) known_.emplace(identity, hash);
    return hash;
  }

 private:
  template <typename T>
  static uint32_t Extend(uint32_t hash, T number) {
    return zip::ExtendCrc32(hash, &number, sizeof(number));
  }

  static uint32_t Extend(uint32_t hash, const std::string& text) {
    return zip::ExtendCrc32(Extend(hash, text.size()), text.data(), text.size());
  }

  absl::StatusOr<uint32_t> Contents(const Value& value) {
    const uint32_t type = Extend(0, value.type());
    switch (value.type()) {
      case Value::Type::kNone:
        return type;
      case Value::Type::kBool:
        return Extend(type, value.bool_value());
      case Value::Type::kInt:
        return Extend(type, value.int_value());
      case Value::Type::kDouble:
        return Extend(type, value.double_value());
      case Value::Type::kString:
        return Extend(type, value.string_value());
      case Value::Type::kBytes:
        return Extend(type, value.bytes_value());
      case Value::Type::kTensor:
        return OfTensor(type, value.tensor());
      case Value::Type::kList:
      case Value::Type::kTuple:
        return OfItems(type, value);
      case Value::Type::kDict:
        return OfDict(type, value);
    }
    return type;
  }

  static absl::StatusOr<uint32_t> OfTensor(uint32_t hash, const at::Tensor& tensor) {
    LOCKSTEP_RETURN_IF_ERROR(tensors::DtypeOf(tensor).status());
    hash = Extend(Extend(hash, tensor.scalar_type()), tensor.dim());
    for (const int64_t size : tensor.sizes()) hash = Extend(hash, size);
    const at::Tensor elements = tensors::Elements(tensor);
    return zip::ExtendCrc32(hash, elements.data_ptr(), elements.nbytes());
  }

  absl::StatusOr<uint32_t> OfItems(uint32_t hash, const Value& sequence) {
    for (const Value& item : sequence.items()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t of_item, Of(item));
      hash = Extend(hash, of_item);
    }
    return Extend(hash, sequence.size());
  }

  absl::StatusOr<uint32_t> OfDict(uint32_t hash, const Value& dict) {
    const bool ordered = dict.dict_kind() == Value::DictKind::kOrderedDict;
    uint32_t sum = Extend(hash, dict.dict_kind());
    for (const auto& [key, value] : dict.entries()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t of_key, Of(key));
      LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t of_value, Of(value));
      const uint32_t entry = Extend(Extend(0, of_key), of_value);
      sum = ordered ? Extend(sum, entry) : sum + entry;
    }
    return Extend(sum, dict.size());
  }

  // By identity. Without it, lists that contain one list twice, and so on, would take exponential time.
  absl::flat_hash_map<const void*, uint32_t> known_;
};

}  // namespace

absl::StatusOr<uint32_t> HashOf(const Value& value) { return Hasher().Of(value); }

}  // namespace lockstep::checkpoint::internal
