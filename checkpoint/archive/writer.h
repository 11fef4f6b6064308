// Writes a .pt archive in the layout of torch.save.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_WRITER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/options.h"

namespace lockstep::checkpoint::archive {

// The folder inside the archive, by torch.save's rule: the file's name without its extension.
std::string ArchiveNameOf(absl::string_view path);

// Writes the archive to `sink`, its records in the folder `archive`; one block after another, so that memory does not
// grow with it. Storages of `deferred`, if it is not null, are fetched one after another in the order of the pickle.
// Returns the sink's errors, and the errors of reading from a device and of fetching.
absl::Status WriteArchive(const file::ByteSink& sink, std::string archive, const EncodedValue& encoded,
                          const DeferredTensors* deferred = nullptr);

// Replaces the file at `path` by the archive, as Save does. Errors do not name the path.
absl::Status WriteEncodedFile(const std::string& path, const EncodedValue& encoded, const SaveOptions& options,
                              const DeferredTensors* deferred = nullptr);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_WRITER_H_
