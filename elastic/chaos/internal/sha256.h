// The digest of a file.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SHA256_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SHA256_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::elastic::chaos::internal {

// In hexadecimal digits, as sha256sum prints it. NotFound: the file cannot be read, or is empty.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SHA256_H_
