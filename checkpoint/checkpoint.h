// Saves and loads PyTorch's .pt files. Python's torch.load(weights_only=True) reads files saved here, with mmap=True
// too. Load reads files that Python's torch.save wrote, if they hold tensors and plain values.
//
//   LOCKSTEP_RETURN_IF_ERROR(Save("model.pt", Value::Dict({{"epoch", 3}, {"state_dict", StateDict(*model)}})));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value checkpoint, Load("model.pt", {.map_location = "cpu"}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t epoch, GetInt(checkpoint, "epoch"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, GetDict(checkpoint, "state_dict"));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, state_dict));
//
// Both functions block and keep no state. Several threads may call them at a time. Tensors must not change while they
// are saved.

#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Writes `value` to `path` and replaces an existing file in one step: at every moment `path` is either the whole
// previous file or the whole new one.
//
// The data is written to a hidden temporary file in the same directory, which is flushed and then renamed. A symbolic
// link at `path` is replaced, not followed. On any error the previous file is intact and the temporary file is removed.
// If a program is killed, the next Save to the same path removes its temporary file. Tensors are streamed, also from a
// device: memory grows only by the pickle and some MiB. A storage is written whole and once, however many tensors view
// it. So a small view of a large tensor writes all of it, as in Python (clone() the view to avoid this).
//
// Errors name `path` and, if one is the reason, the value. InvalidArgument: a string is not UTF-8 (use Value::Bytes), a
// tensor is undefined, views of one storage have different dtypes, containers are nested more than 500 deep, or `path`
// is a device, a FIFO or a socket, which a new file would replace.
// Unimplemented: quantized, sparse, nested and meta tensors. NotFound, PermissionDenied, ResourceExhausted,
// FailedPrecondition, ...: errors of the system.
absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options = {});

// Reads the whole file. Nothing in it is executed, and a damaged or malicious file gives an error. A file in the format
// before PyTorch 1.6 has no checksums: its structure is checked, and a changed element goes unnoticed.
//
// An OrderedDict keeps its _metadata. Tensors keep dtype, shape, strides, requires_grad, attributes and whether they
// were Parameters. Tensors that shared memory share it again. Quantized and sparse tensors load, and Save refuses them.
// Other objects become plain values: a torch.Size a tuple; a torch.device, dtype or layout, and an int of more than 64
// bits, a string; a set or frozenset a list; a bytearray bytes; a complex number a tensor without dimensions; a scalar
// of numpy a bool, int or float, and an array of numpy a tensor.
//
// Errors name `path`, the record, and the place in the value: ["args"]: an argparse.Namespace. NotFound,
// PermissionDenied: errors of the system. DataLoss: the file is damaged, or of another kind, which is named.
// InvalidArgument: a directory, a Python object that is not allowed (with a replacement to save), or a map_location
// that is not a device. FailedPrecondition: the device of a tensor does not exist here. ResourceExhausted: memory_limit
// is exceeded, or memory ran out. Unimplemented: a TorchScript or .pt2 file; a big-endian or compressed file; nested
// and meta tensors; arrays of numpy with a dtype that tensors lack.
absl::StatusOr<Value> Load(absl::string_view path, const LoadOptions& options = {});

// Loads one entry of a file that holds a dict: LoadEntry("last.pt", "state_dict"), LoadEntry("last.pt", {"ema",
// "net"}). Other entries may hold objects that Load refuses. Other tensors are not loaded, but with options.verify they
// are still read, in small pieces, and checked. Returns the errors of Load. InvalidArgument also: the file does not
// hold a dict. NotFound also: it does not have the key; the error names the keys that it has.
absl::StatusOr<Value> LoadEntry(absl::string_view path, const KeyPath& key, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
