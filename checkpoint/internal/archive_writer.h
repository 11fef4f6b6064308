// A .pt archive, laid out as torch.save lays it out.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ARCHIVE_WRITER_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ARCHIVE_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/internal/byte_stream.h"
#include "lockstep/checkpoint/internal/encoder.h"

namespace lockstep::checkpoint::internal {

// The folder inside the archive, by torch.save's rule: the file's name without its extension.
std::string ArchiveNameOf(absl::string_view path);

// Writes the archive to `sink`, its records in the folder `archive`; one block after another, so that memory does not
// grow with it. Errors are the sink's and those of reading from a device.
absl::Status WriteArchive(const ByteSink& sink, std::string archive, const EncodedValue& encoded);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ARCHIVE_WRITER_H_
