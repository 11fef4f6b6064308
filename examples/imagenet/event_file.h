// Scalars as TensorBoard reads them.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::examples::imagenet {

// An event file: records of TFRecord's framing (length, its CRC, data, its CRC; the CRCs are CRC-32C, masked), each an
// Event protocol buffer. Format: tensorflow/core/lib/io/record_writer.h and core/util/event.proto.
class EventFile {
 public:
  // Makes `directory` where it is missing, and in it a new file that TensorBoard finds by its name,
  // events.out.tfevents.SECONDS.HOST.PID. PermissionDenied: it cannot be made.
  static absl::StatusOr<EventFile> Create(const std::string& directory);

  // One point of the curve `tag`. It is in the file when this returns. DataLoss: it could not be written.
  absl::Status Scalar(absl::string_view tag, int64_t step, double value);

  const std::string& path() const { return path_; }

 private:
  explicit EventFile(std::string path);
  absl::Status WriteRecord(const std::string& event);

  std::string path_;
  std::ofstream file_;
};

// CRC-32C (Castagnoli), that of RFC 3720: of "123456789" 0xe3069283.
uint32_t Crc32c(absl::string_view bytes);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_
