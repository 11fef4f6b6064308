// Reads and writes the archive of a program (.pt2).

#ifndef LOCKSTEP_MODELS_EXPORTED_ARCHIVE_H_
#define LOCKSTEP_MODELS_EXPORTED_ARCHIVE_H_

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {

// As in LoadOptions.
struct ReadOptions {
  std::optional<c10::Device> device;
  std::string program;
  bool verify = true;
};

// Returns the errors of Load, without the path.
absl::StatusOr<Program> ReadProgram(const checkpoint::file::ByteSource& source, const ReadOptions& options);

// Writes the program with the present values of its tensors. `archive` is the name of the archive's folder. Returns the
// errors of Save, without the path.
absl::Status WriteProgram(const checkpoint::file::ByteSink& sink, const std::string& archive, const Program& program);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_ARCHIVE_H_
