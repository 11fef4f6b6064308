// Saves and loads safetensors files, a plain format for exchanging models: named tensors and a few strings.
// Specification: https://github.com/huggingface/safetensors.
//
//   LOCKSTEP_RETURN_IF_ERROR(SaveSafetensors("model.safetensors", StateDict(*model), {{"format", "pt"}}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Safetensors file,
//                             LoadSafetensors("model.safetensors", {.map_location = "cuda:0"}));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, file.tensors));
//
// The format stores dtype, shape and elements. It cannot store a device, requires_grad, Parameters, sharing, strides or
// an OrderedDict's _metadata. It has no checksum, so damage to the elements gives no error. Save writes .pt files,
// which have all of these.
//
// The functions block and keep no state. Several threads may call them at a time. Tensors must not change while they
// are saved.

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_SAFETENSORS_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_SAFETENSORS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// In file order. Keys are unique.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct Safetensors {
  Value tensors;  // a dict of str to tensor, in the order of the tensors' bytes in the file
  SafetensorsMetadata metadata;
  // True if the file has metadata at all. The map may be empty then.
  bool has_metadata = false;
};

// Writes `tensors`, a dict of str to tensor, to `path`, and replaces an existing file in one step like Save. The bytes
// equal the output of Python's safetensors.torch.save_file 0.8.0 (which writes several metadata entries in any order):
// tensors are sorted by dtype, wide elements first, and then by name. A tensor that is not contiguous is written in the
// order of its elements. A tensor on a device, or one that is not contiguous, is copied to host memory, one at a time.
//
// Errors name `path` and the tensor. InvalidArgument: `tensors` is not a flat dict of tensors (of {"state_dict": {...}}
// save the inner one), two tensors share memory, as tied weights do (erase or clone() one), names or metadata are not
// UTF-8, a tensor is named "__metadata__", a key occurs twice, or names, shapes and metadata exceed 100,000,000 bytes.
// Unimplemented: complex128 and other dtypes that the format lacks, quantized, sparse, nested and meta tensors. Other
// errors are the system's.
absl::Status SaveSafetensors(absl::string_view path, const Value& tensors, const SafetensorsMetadata& metadata = {},
                             const SaveOptions& options = {});

// Writes `file` as it was loaded. If `has_metadata` is false and `metadata` is empty, the new file has no metadata;
// otherwise it has a map, which may be empty.
absl::Status SaveSafetensors(absl::string_view path, const Safetensors& file, const SaveOptions& options = {});

// Reads the whole file. LoadOptions::map_location is applied to "cpu" for each tensor. LoadOptions::verify has no
// effect, since the format lacks checksums. LoadOptions::memory_limit bounds the memory for names, shapes and metadata:
// at least 512 bytes for each tensor. Reads on several threads.
//
// The header is checked in full, more strictly than in Python: tensors cover the data without overlap or hole, names
// are unique, and unknown fields are errors. Errors name `path` and the tensor. DataLoss: the file is damaged, or not
// a safetensors file. Unimplemented: a dtype is not supported, such as F4. InvalidArgument: a .pt file, or a
// map_location that is not a device. FailedPrecondition: the device does not exist here. ResourceExhausted:
// memory_limit is exceeded, or memory ran out. NotFound, PermissionDenied: errors of the system.
absl::StatusOr<Safetensors> LoadSafetensors(absl::string_view path, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_SAFETENSORS_H_
