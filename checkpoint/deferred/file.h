// .pt files of which one tensor at a time is in memory.

#ifndef LOCKSTEP_CHECKPOINT_DEFERRED_FILE_H_
#define LOCKSTEP_CHECKPOINT_DEFERRED_FILE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Save() of a value with tensors of `deferred`, whose bytes are fetched when it is their turn. The file is the one of
// the same value with its elements in memory. Returns the errors of Save() and of the fetches.
absl::Status SaveDeferred(absl::string_view path, const Value& value, const DeferredTensors& deferred,
                          const SaveOptions& options = {});

// LoadEntry(), whose tensors are added to `deferred`. deferred.Get(tensor) reads a tensor's storage from the file, which
// stays open, and with options.verify checks its CRC-32. Other records are not checked. Tensors are on the CPU, and
// options.map_location is ignored. Returns the errors of LoadEntry(). Unimplemented also: a tensor is sparse or quantized.
absl::StatusOr<Value> LoadDeferred(absl::string_view path, const KeyPath& key, DeferredTensors& deferred,
                                   const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_DEFERRED_FILE_H_
