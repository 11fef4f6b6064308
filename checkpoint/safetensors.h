// Saves and loads safetensors files, the plain format in which models are passed around: named tensors and a few
// strings, nothing else. Its description: https://github.com/huggingface/safetensors.
//
//   LOCKSTEP_RETURN_IF_ERROR(SaveSafetensors("model.safetensors", StateDict(*model), {{"format", "pt"}}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Safetensors file, LoadSafetensors("model.safetensors", {.map_location =
//   "cuda:0"})); LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, file.tensors));
//
// The format holds dtype, shape and elements. It has no place for a device, requires_grad, Parameters, sharing, strides
// or an OrderedDict's _metadata, and it carries no checksum: damage to the elements goes unnoticed. Save writes .pt
// files, which have all of these.
//
// Both block, keep no state, and may run in several threads at a time; tensors must not change while they are saved.

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// In their order; keys differ.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

struct Safetensors {
  Value tensors;  // a dict of str to tensor, in the order of the tensors' bytes in the file
  SafetensorsMetadata metadata;
  // Whether the file has metadata at all; the map may be empty.
  bool has_metadata = false;
};

// Writes `tensors`, a dict of str to tensor, to `path` as Save does: in one step, old or new file whole. The bytes are
// those of Python's safetensors.torch.save_file 0.8.0 (which writes metadata of several entries in any order): tensors
// sorted by dtype, wide elements first, and by name. What is not contiguous is written in the order of its elements.
// Takes host memory for one tensor at a time where it is on a device or not contiguous.
//
// Errors name `path` and the tensor. InvalidArgument: no flat dict of tensors (of {"state_dict": {...}} save the inner
// one), two tensors that share memory, as tied weights do (erase or clone() one), names or metadata that are not UTF-8,
// a tensor named "__metadata__", a key twice, more than 100,000,000 bytes of names, shapes and metadata. Unimplemented:
// complex128 and other dtypes that the format lacks, quantized, sparse, nested and meta tensors. Otherwise what the
// system said.
absl::Status SaveSafetensors(absl::string_view path, const Value& tensors, const SafetensorsMetadata& metadata = {},
                             const SaveOptions& options = {});

// Writes `file` as it was loaded, with an empty map of metadata where it has one: without any, where `has_metadata` is
// false and `metadata` is empty.
absl::Status SaveSafetensors(absl::string_view path, const Safetensors& file, const SaveOptions& options = {});

// Reads the whole file. LoadOptions::map_location is asked with "cpu" for each tensor; LoadOptions::verify changes
// nothing, since there are no checksums. LoadOptions::memory_limit bounds what names, shapes and metadata take, 512
// bytes and more for each tensor. Reads in several threads.
//
// The header is checked in full, more strictly than Python does: tensors cover the data without overlap or hole, no
// name stands twice, no field is unknown. Errors name `path` and the tensor. DataLoss: damaged, or no safetensors file.
// Unimplemented: a dtype that is not supported, such as F4. InvalidArgument: a .pt file, a map_location that is no
// device. FailedPrecondition: the device is not here. ResourceExhausted: past memory_limit, or out of memory. NotFound,
// PermissionDenied: what the system said.
absl::StatusOr<Safetensors> LoadSafetensors(absl::string_view path, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_H_
