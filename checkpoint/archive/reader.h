// A .pt file as a Value.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/archive/storage_loader.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::archive {

// `source` is the whole archive, or a file in the format before PyTorch 1.6. If `saved_devices` is not null, it is set
// to the devices from which the storages were saved. Returns the errors of Load, without the path.
absl::StatusOr<Value> ReadArchive(const file::ByteSource& source, const LoadOptions& options,
                                  SavedDevices* saved_devices = nullptr);

// The value at `path` in the archive. Other values may be of objects that are refused. If `deferred` is not null, its
// tensors are added to that and not read, and other records are not checked.
absl::StatusOr<Value> ReadArchiveEntry(const file::ByteSource& source, const KeyPath& path, const LoadOptions& options,
                                       SavedDevices* saved_devices = nullptr, DeferredTensors* deferred = nullptr);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_
