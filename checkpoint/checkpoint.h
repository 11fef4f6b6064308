// Saves and loads PyTorch's .pt files: what C++ saves Python's torch.load(weights_only=True) reads (with mmap=True
// too), and what Python's torch.save wrote of tensors and plain values C++ loads.
//
//   LOCKSTEP_RETURN_IF_ERROR(Save("model.pt", Value::Dict({{"epoch", 3}, {"state_dict", StateDict(*model)}})));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value checkpoint, Load("model.pt", {.map_location = "cpu"}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, GetInt(checkpoint, "epoch"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, GetDict(checkpoint, "state_dict"));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, state_dict));
//
// Both block, keep no state, and may run in several threads at a time; tensors must not change while they are saved.

#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Writes `value` to `path`, replacing what is there in one step: at every moment `path` is the whole previous file or
// the whole new one.
//
// The bytes go to a hidden temporary file in the same directory, which is flushed and then renamed; a symbolic link at
// `path` is replaced, not followed. On any error the previous file is intact and the temporary removed; temporaries
// that a killed program left are removed by the next Save to the same path. Tensors are streamed: memory grows by the
// pickle and some MiB, for tensors on a device too. A storage is written whole and once, however many tensors view it;
// so a small view of a large tensor takes the large one along, as in Python (clone() it where that is not wanted).
//
// Errors name `path` and, where one is to blame, the value. InvalidArgument: a string that is not UTF-8 (use
// Value::Bytes), an undefined tensor, views of one storage with different dtypes, containers nested more than 500 deep.
// Unimplemented: quantized, sparse, nested and meta tensors. NotFound, PermissionDenied, ResourceExhausted,
// FailedPrecondition, ...: what the system said.
absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options = {});

// Reads the whole file. Nothing in it is executed, and a damaged or crafted file gives an error.
//
// An OrderedDict keeps its _metadata. Tensors keep dtype, shape, strides, requires_grad, attributes and whether they
// were Parameters, and tensors that shared memory share it again. A torch.Size comes as a tuple, a torch.device and a
// dtype as a string.
//
// Errors name `path`, the record, and the place in the value: ["args"]: an argparse.Namespace. NotFound,
// PermissionDenied: what the system said. DataLoss: damaged, or a file of another kind, which is named.
// InvalidArgument: a directory, a Python object that is not allowed (with what to save instead), a map_location that is
// not a device. FailedPrecondition: a tensor's device is not here. ResourceExhausted: past memory_limit, or out of
// memory. Unimplemented: a legacy (pre-1.6), TorchScript or .pt2 file, big-endian, compressed; quantized, sparse,
// nested and meta tensors; sets, complex numbers, ints past 64 bits.
absl::StatusOr<Value> Load(absl::string_view path, const LoadOptions& options = {});

// One entry of a file that is a dict: LoadEntry("last.pt", "state_dict"). Tensors elsewhere are not loaded; with
// options.verify they are still read, in small pieces, and checked. Errors are Load's, also InvalidArgument where the
// file is no dict and NotFound where it has no such key.
absl::StatusOr<Value> LoadEntry(absl::string_view path, absl::string_view key, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
