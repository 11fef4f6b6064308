// The records of a .pt2 archive that describe its tensors, as plain data. Without LibTorch, so that sanitizers and
// fuzzers see all of it. Terms are the ones of PyTorch's schema (torch/_export/serde/schema.py). Pure.

#ifndef LOCKSTEP_CHECKPOINT_PT2_PAYLOAD_H_
#define LOCKSTEP_CHECKPOINT_PT2_PAYLOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pt2/json_reader.h"

namespace lockstep::checkpoint::pt2 {

// A size or stride: a number, a symbol, or an expression of symbols.
struct Extent {
  int64_t number = -1;      // -1 if it is symbolic
  std::string symbol = {};  // empty for an expression
};

struct DeviceName {
  std::string type = "cpu";
  int64_t index = -1;
};

constexpr int64_t kStridedLayout = 7;

struct TensorMeta {
  int64_t dtype = 0;  // as the schema numbers them
  std::vector<Extent> sizes;
  std::vector<Extent> strides;
  Extent storage_offset;
  bool requires_grad = false;
  DeviceName device = {};
  int64_t layout = kStridedLayout;
};

// How one weight or constant is stored.
struct Payload {
  std::string name;         // the Python name
  std::string record = {};  // the file's, below data/weights/ or data/constants/
  bool is_parameter = false;
  bool pickled = false;
  std::optional<TensorMeta> tensor = {};
};

// Fail `json` if the object is malformed.
TensorMeta ParseTensorMeta(JsonReader& json, const Json& meta);
DeviceName ParseDevice(JsonReader& json, const Json& device);

// Parses data/weights/NAME_weights_config.json or its counterpart for constants, in the order of the file. DataLoss:
// the text is not JSON, or a field is missing or has another type. Errors name the tensor.
absl::StatusOr<std::vector<Payload>> ParsePayloads(absl::string_view json);

// Returns the text that ParsePayloads reads. Requires: no size is symbolic.
std::string PayloadsText(const std::vector<Payload>& payloads);

}  // namespace lockstep::checkpoint::pt2

#endif  // LOCKSTEP_CHECKPOINT_PT2_PAYLOAD_H_
