#ifndef LOCKSTEP_DATA_INTERNAL_WHOLE_FILE_H_
#define LOCKSTEP_DATA_INTERNAL_WHOLE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// The contents of the file at `path`, read into `buffer`, which grows to the largest file that it has held: the view is
// valid until `buffer` is used again. Errors do not name the file: the caller does. ResourceExhausted: it has more than
// `most` bytes. InvalidArgument: it is not a regular file. Does not wait for a FIFO.
absl::StatusOr<absl::string_view> ReadWholeFile(const std::string& path, int64_t most, std::vector<char>& buffer);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_WHOLE_FILE_H_
