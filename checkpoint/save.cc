#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/encoded_file.h"
#include "lockstep/checkpoint/internal/encoder.h"

namespace lockstep::checkpoint {
namespace {

absl::Status SaveTo(const std::string& path, const Value& value, const SaveOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const internal::EncodedValue encoded, internal::Encode(value));
  return internal::WriteEncodedFile(path, encoded, options);
}

}  // namespace

absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options) {
  return internal::AtPath(path, [&] { return SaveTo(std::string(path), value, options); });
}

}  // namespace lockstep::checkpoint
