// Writes curves for TensorBoard: torch.utils.tensorboard for C++, without Python, TensorFlow and protobuf.

#ifndef LOCKSTEP_TENSORBOARD_SUMMARY_WRITER_H_
#define LOCKSTEP_TENSORBOARD_SUMMARY_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/output_file.h"

namespace lockstep::tensorboard {

// Owns an event file. The ranks of a group have the same curves, so usually only rank 0 has a writer:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto writer, tensorboard::SummaryWriter::Create("runs/resnet50"));
//   for (int64_t step = 0; step < steps; ++step) {
//     LOCKSTEP_RETURN_IF_ERROR(writer.AddScalar("train/loss", Train(step), step));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(writer.Close());
//
// Then `tensorboard --logdir=runs` shows the curves. The file consists of records in TFRecord's framing (length, its
// CRC, data, its CRC; the CRCs are masked CRC-32C). Each is an Event protocol buffer. Format:
// tensorflow/core/lib/io/record_writer.h and core/util/event.proto.
//
// Errors begin with the file's path and end with the system's error. absl::ErrnoToStatus chooses their codes. Not
// thread-safe.
class SummaryWriter {
 public:
  // Creates `log_dir` if necessary, and in it a new file with the name that TensorBoard expects:
  // events.out.tfevents.SECONDS.HOST.PID.
  static absl::StatusOr<SummaryWriter> Create(const std::string& log_dir);

  // Writes one point of the curve `tag`. TensorBoard has floats, so `value` is rounded to one. All bytes are with the
  // system when this returns.
  absl::Status AddScalar(absl::string_view tag, double value, int64_t step);

  // Closes the file. Some file systems report a failed write only here. Do not write afterwards.
  absl::Status Close() { return file_.Close(); }

  const std::string& path() const { return path_; }

 private:
  SummaryWriter(std::string path, OutputFile file) : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status WriteRecord(const std::string& event);

  std::string path_;
  OutputFile file_;
};

// CRC-32C (Castagnoli) as in RFC 3720: 0xe3069283 for "123456789".
uint32_t Crc32c(absl::string_view bytes);

}  // namespace lockstep::tensorboard

#endif  // LOCKSTEP_TENSORBOARD_SUMMARY_WRITER_H_
