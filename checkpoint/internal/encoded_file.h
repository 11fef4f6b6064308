// A file of an encoded value.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ENCODED_FILE_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ENCODED_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/internal/encoder.h"
#include "lockstep/checkpoint/options.h"

namespace lockstep::checkpoint::internal {

// Replaces `path` as Save does; errors without the path.
absl::Status WriteEncodedFile(const std::string& path, const EncodedValue& encoded, const SaveOptions& options);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ENCODED_FILE_H_
