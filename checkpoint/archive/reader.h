// A .pt archive as a Value.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/archive/storage_loader.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::archive {

// `source` is the whole archive. If `saved_devices` is not null, it is set to the devices from which the storages were
// saved. Returns the errors of Load, without the path.
absl::StatusOr<Value> ReadArchive(const file::ByteSource& source, const LoadOptions& options,
                                  SavedDevices* saved_devices = nullptr);

// The entry `key` of the dict in the archive.
absl::StatusOr<Value> ReadArchiveEntry(const file::ByteSource& source, absl::string_view key,
                                       const LoadOptions& options);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_READER_H_
