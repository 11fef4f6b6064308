#include "lockstep/data/internal/jpeg_decoder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/jpeg_markers.h"
#include "lockstep/data/internal/libjpeg.h"

namespace lockstep::data::internal {
namespace {

// Colour upsampling reads a pixel's neighbours at any scale, and uses another rule for images of less than 5 columns.
// With this many more columns decoded on each side, the wanted pixels are the same as in the whole image.
constexpr int64_t kMargin = 8;

// A scan may have few bytes and still take the time of the whole image. Encoders write about ten.
constexpr int kMaxScans = 100;

// The memory of libjpeg for a progressive image: two bytes for each of four colours, also for the padding of a thin
// image to whole blocks.
constexpr int64_t kMemoryPerPixel = 8;
constexpr int64_t kSpareMemory = 64 << 20;

constexpr JDIMENSION kRowsAtOnce = 4;
constexpr int64_t kMostColours = 4;

constexpr absl::string_view kStart = "\xff\xd8\xff";

JpegErrors& ErrorsOf(j_common_ptr jpeg) { return *static_cast<JpegErrors*>(jpeg->err); }

[[noreturn]] void Land(j_common_ptr jpeg) { std::longjmp(ErrorsOf(jpeg).landing, 1); }

[[noreturn]] void Land(void* jpeg, decltype(JpegErrors::kind) kind) {
  ErrorsOf(static_cast<j_common_ptr>(jpeg)).kind = kind;
  Land(static_cast<j_common_ptr>(jpeg));
}

// As in Pillow, a warning is not an error: it means damaged data that libjpeg can skip.
void IgnoreWarning(j_common_ptr, int) {}

boolean EndOfBytes(j_decompress_ptr jpeg) { Land(jpeg, JpegErrors::kTruncated); }

void SkipBytes(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > jpeg->src->bytes_in_buffer) EndOfBytes(jpeg);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= count;
}

void CheckScans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kMaxScans) Land(jpeg, JpegErrors::kTooManyScans);
}

jpeg_source_mgr SourceOf(absl::string_view bytes) {
  jpeg_source_mgr source = {};
  source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  source.bytes_in_buffer = bytes.size();
  source.init_source = [](j_decompress_ptr) {};
  source.fill_input_buffer = EndOfBytes;
  source.skip_input_data = SkipBytes;
  source.resync_to_restart = jpeg_resync_to_restart;
  source.term_source = [](j_decompress_ptr) {};
  return source;
}

// Returns whether libjpeg smooths over scans that a progressive file lacks, with blocks up to two blocks away. Then a
// part of the image has other pixels than the whole image.
bool IsSmoothed(const jpeg_decompress_struct& jpeg) {
  constexpr int kCoefficients = 10;
  if (!jpeg.coef_bits) return false;
  for (int component = 0; component < jpeg.num_components; ++component) {
    const int* missing_bits = jpeg.coef_bits[component];
    if (std::any_of(missing_bits, missing_bits + kCoefficients, [](int bits) { return bits != 0; })) return true;
  }
  return false;
}

// Returns whether jpeg_crop_scanline() would leave columns of a colour undefined, as libjpeg-turbo 2.1.5 does. It takes
// the width of a colour from the sampling factors alone. But a scaled decoder may double a colour's size, and if it has
// to be upsampled still, as at half the size of an image whose luma is sampled 2x4, columns are missing.
bool IsCroppedWrongly(const jpeg_decompress_struct& jpeg) {
  for (int i = 0; i < jpeg.num_components; ++i) {
    const jpeg_component_info& colour = jpeg.comp_info[i];
    const int64_t samples = int64_t{jpeg.output_width} * colour.h_samp_factor;
    const int64_t cropped = (samples + jpeg.max_h_samp_factor - 1) / jpeg.max_h_samp_factor;
    const bool is_upsampled =
        colour.downsampled_width != jpeg.output_width || colour.downsampled_height != jpeg.output_height;
    if (is_upsampled && colour.downsampled_width != cropped) return true;
  }
  return false;
}

// a * b / 255, rounded.
int Scale(int a, int b) {
  const int product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

// Converts a row of four bytes a pixel to three. 255 means no ink, as in Adobe's files and as Pillow always assumes.
void InvertedCmykToRgb(uint8_t* row, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    const int white = row[4 * x + 3];
    for (int c = 0; c < 3; ++c) row[3 * x + c] = white - Scale(255 - row[4 * x + c], white);
  }
}

}  // namespace

bool JpegDecoder::Recognises(absl::string_view bytes) { return absl::StartsWith(bytes, kStart); }

absl::StatusOr<ImageSize> JpegDecoder::Open(absl::string_view bytes) {
  bytes_ = bytes;
  LOCKSTEP_RETURN_IF_ERROR(Restart());
  LOCKSTEP_ASSIGN_OR_RETURN(has_end_, HasJpegEnd(bytes, bytes.size() - source_.bytes_in_buffer));
  return ImageSize{jpeg_.image_height, jpeg_.image_width};
}

absl::Status JpegDecoder::Restart() {
  Close();
  source_ = SourceOf(bytes_);
  return Guarded(&JpegDecoder::ReadHeader);
}

// Like Pillow, this takes what follows the image for a part of it, and needs no end behind the last row. An image of
// several scans has its last row only after the end marker.
absl::Status JpegDecoder::CheckEnd() {
  if (has_end_) return absl::OkStatus();
  const absl::Status truncated =
      absl::DataLossError(absl::StrCat("expected the end marker of JPEG, found the end of the file after ",
                                       bytes_.size(), " bytes without one: it is truncated"));
  if (jpeg_has_multiple_scans(&jpeg_)) return truncated;
  pixels_ = buffer_.Reserve(kMostColours * jpeg_.image_width);
  const absl::Status rows = Guarded(&JpegDecoder::ReadToEnd);
  if (!rows.ok()) return errors_.kind == JpegErrors::kTruncated ? truncated : rows;
  const absl::Status end = Guarded(&JpegDecoder::Finish);
  if (!end.ok() && errors_.kind != JpegErrors::kTruncated) return end;
  return Restart();
}

absl::StatusOr<ImageSize> JpegDecoder::Shrink(int64_t denominator) {
  jpeg_.scale_num = 1;
  jpeg_.scale_denom = denominator;
  LOCKSTEP_RETURN_IF_ERROR(Guarded(&JpegDecoder::ComputeSize));
  return ImageSize{jpeg_.output_height, jpeg_.output_width};
}

absl::StatusOr<ImageView> JpegDecoder::Decode(const Rectangle& wanted) {
  covers_ = wanted;
  LOCKSTEP_RETURN_IF_ERROR(Guarded(&JpegDecoder::Start));
  const int64_t stride = covers_.width * jpeg_.output_components;
  pixels_ = buffer_.Reserve(covers_.height * stride);
  LOCKSTEP_RETURN_IF_ERROR(Guarded(&JpegDecoder::ReadRows));
  return ImageView{pixels_, stride, covers_};
}

absl::Status JpegDecoder::Guarded(void (JpegDecoder::*step)()) {
  errors_.kind = JpegErrors::kLibjpegs;
  if (setjmp(errors_.landing) != 0) return Failure();
  (this->*step)();
  return absl::OkStatus();
}

absl::Status JpegDecoder::Failure() {
  switch (errors_.kind) {
    case JpegErrors::kTruncated:
      return absl::DataLossError("expected more JPEG data, found the end of the file: it is truncated");
    case JpegErrors::kTooManyScans:
      return absl::ResourceExhaustedError(
          absl::StrCat("expected at most ", kMaxScans, " scans of a JPEG file, found more"));
    case JpegErrors::kLibjpegs:
      break;
  }
  char message[JMSG_LENGTH_MAX];
  errors_.format_message(reinterpret_cast<j_common_ptr>(&jpeg_), message);
  const bool memory = errors_.msg_code == JERR_OUT_OF_MEMORY || errors_.msg_code == JERR_NO_BACKING_STORE;
  return absl::Status(memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDataLoss,
                      absl::StrCat("libjpeg: ", message));
}

// Each image has a new decompressor, which takes 1.3 microseconds with the header. Otherwise an image that lacks tables
// would use the tables of the previous image.
void JpegDecoder::ReadHeader() {
  jpeg_.err = jpeg_std_error(&errors_);
  errors_.error_exit = Land;
  errors_.emit_message = IgnoreWarning;
  jpeg_create_decompress(&jpeg_);
  progress_.progress_monitor = CheckScans;
  jpeg_.progress = &progress_;
  jpeg_.src = &source_;
  jpeg_read_header(&jpeg_, TRUE);
}

void JpegDecoder::ComputeSize() { jpeg_calc_output_dimensions(&jpeg_); }

void JpegDecoder::Start() {
  jpeg_.mem->max_memory_to_use = kSpareMemory + kMemoryPerPixel * jpeg_.image_width * jpeg_.image_height;
  jpeg_.out_color_space = jpeg_.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg_);
  if (IsSmoothed(jpeg_) || IsCroppedWrongly(jpeg_)) covers_ = {0, 0, jpeg_.output_height, jpeg_.output_width};
  CropColumns();
}

// Keeps no pixels.
void JpegDecoder::ReadToEnd() {
  jpeg_start_decompress(&jpeg_);
  JSAMPROW row = pixels_;
  while (jpeg_.output_scanline < jpeg_.output_height) jpeg_read_scanlines(&jpeg_, &row, 1);
}

void JpegDecoder::Finish() { jpeg_finish_decompress(&jpeg_); }

void JpegDecoder::CropColumns() {
  const int64_t begin = std::max<int64_t>(covers_.left - kMargin, 0);
  const int64_t end = std::min<int64_t>(covers_.left + covers_.width + kMargin, jpeg_.output_width);
  JDIMENSION left = begin;
  JDIMENSION width = end - begin;
  // Also moves them outwards to the edges of blocks.
  if (width < jpeg_.output_width) jpeg_crop_scanline(&jpeg_, &left, &width);
  covers_.left = left;
  covers_.width = width;
}

void JpegDecoder::ReadRows() {
  jpeg_skip_scanlines(&jpeg_, covers_.top);
  const JDIMENSION end = covers_.top + covers_.height;
  while (jpeg_.output_scanline < end) ReadSomeRows(end);
}

void JpegDecoder::ReadSomeRows(JDIMENSION end) {
  const int64_t stride = covers_.width * jpeg_.output_components;
  uint8_t* const first = pixels_ + (jpeg_.output_scanline - covers_.top) * stride;
  JSAMPROW rows[kRowsAtOnce];
  const JDIMENSION wanted = std::min(kRowsAtOnce, end - jpeg_.output_scanline);
  for (JDIMENSION i = 0; i < wanted; ++i) rows[i] = first + i * stride;
  const JDIMENSION read = jpeg_read_scanlines(&jpeg_, rows, wanted);
  if (jpeg_.out_color_space != JCS_CMYK) return;
  for (JDIMENSION i = 0; i < read; ++i) InvertedCmykToRgb(rows[i], covers_.width);
}

void JpegDecoder::Close() {
  if (jpeg_.mem) jpeg_destroy_decompress(&jpeg_);
  jpeg_ = {};
}

}  // namespace lockstep::data::internal
