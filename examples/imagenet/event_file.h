// Writes scalars for TensorBoard.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/examples/program/output_file.h"

namespace lockstep::examples::imagenet {

// An event file. It consists of records in TFRecord's framing (length, its CRC, data, its CRC; the CRCs are masked
// CRC-32C). Each is an Event protocol buffer. Format: tensorflow/core/lib/io/record_writer.h and core/util/event.proto.
class EventFile {
 public:
  // Creates `directory` if necessary, and in it a new file with the name that TensorBoard expects:
  // events.out.tfevents.SECONDS.HOST.PID. Returns OutputFile's errors, which name the file.
  static absl::StatusOr<EventFile> Create(const std::string& directory);

  // Writes one point of the curve `tag`. It is in the file when this returns.
  absl::Status Scalar(absl::string_view tag, int64_t step, double value);

  // Closes the file.
  absl::Status Close() { return file_.Close(); }

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, OutputFile file) : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status WriteRecord(const std::string& event);

  std::string path_;
  OutputFile file_;
};

// CRC-32C (Castagnoli) as in RFC 3720: 0xe3069283 for "123456789".
uint32_t Crc32c(absl::string_view bytes);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_EVENT_FILE_H_
