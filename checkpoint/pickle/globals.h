// The allow-list: the Python objects that a pickle may name, and their meaning for the reader. Nothing is ever
// executed.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_GLOBALS_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_GLOBALS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::pickle {

// A class, or a function that makes an object, by its Python name.
struct PickleClass {
  absl::string_view module;
  absl::string_view name;
};
using PickleClasses = std::vector<PickleClass>;

enum class PickleGlobal : uint8_t {
  kOrderedDict,
  kCounter,
  kRebuildTensor,  // before PyTorch 0.4
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kRebuildFromType,  // a tensor with attributes, as a torch.nn.Buffer has
  kTensorType,       // torch.Tensor
  kParameterType,    // torch.nn.parameter.Parameter
  kEncode,           // _codecs.encode: how protocol 2 writes bytes
  kBytes,            // builtins.bytes: b"" in protocol 2
  kByteArray,        // builtins.bytearray
  kSet,              // builtins.set and frozenset
  kLayout,           // torch.serialization._get_layout
  kDevice,           // torch.device
  kSize,             // torch.Size
  kStorageType,      // torch.FloatStorage, ...
  kOldTensorType,    // torch.FloatTensor, ..., before PyTorch 0.4
  kName,             // torch.float32, torch.per_tensor_affine, ...: its value is its name
  kClass,            // one of the classes that this reader was given
};

// InvalidArgument, naming the object and a replacement to save: it is not on the list. Unimplemented: PyTorch loads it
// and Lockstep does not.
absl::StatusOr<PickleGlobal> FindPickleGlobal(absl::string_view module, absl::string_view name);

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_GLOBALS_H_
