// Decodes the wanted part of a JPEG file, with the pixels of Pillow.

#ifndef LOCKSTEP_DATA_INTERNAL_JPEG_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_JPEG_DECODER_H_

#include <csetjmp>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/libjpeg.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Where libjpeg's errors land: see JpegDecoder::Guarded().
struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf landing;
  enum { kLibjpegs, kTruncated, kTooManyScans } kind;  // kLibjpegs: the fields of jpeg_error_mgr say more
};

// Decodes one image after another, each by Open(), Shrink() if wanted, and Decode(). For one thread.
class JpegDecoder {
 public:
  JpegDecoder() = default;
  ~JpegDecoder() { Close(); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Returns whether `bytes` begin like a JPEG file.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without checks of the size and of `wanted`. Only Decode() allocates memory in
  // proportion to the size.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode(const Rectangle& wanted);

  // Call it after Open() and before others. DataLoss: the file lacks its end marker, and libjpeg cannot decode the
  // whole image without it. To know this, it decodes it.
  absl::Status CheckEnd();

  // Makes Decode() decode the image at 1/denominator. The denominator is 1, 2, 4 or 8. Returns the resulting size.
  absl::StatusOr<ImageSize> Shrink(int64_t denominator);

 private:
  // Runs `step`. An error inside libjpeg leaves it by longjmp, so its frame and its callees must not have objects with
  // destructors. The memory is libjpeg's, and Close() frees it.
  absl::Status Guarded(void (JpegDecoder::*step)());
  absl::Status Failure();
  absl::Status Restart();

  void ReadHeader();
  void ComputeSize();
  void Start();
  void CropColumns();
  void ReadToEnd();
  void Finish();
  void ReadRows();
  void ReadSomeRows(JDIMENSION end);
  void Close();

  jpeg_decompress_struct jpeg_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  JpegErrors errors_ = {};
  absl::string_view bytes_;
  bool has_end_ = true;
  PixelBuffer buffer_;
  uint8_t* pixels_ = nullptr;  // in buffer_, rows of output_width * output_components bytes
  Rectangle covers_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_JPEG_DECODER_H_
