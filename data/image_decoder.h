// Decodes image files to the same pixels as Pillow's convert("RGB"), which torchvision uses.

#ifndef LOCKSTEP_DATA_IMAGE_DECODER_H_
#define LOCKSTEP_DATA_IMAGE_DECODER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"

namespace lockstep::data {

struct ImageDecoderOptions {
  // An image with more pixels is rejected before memory is allocated for it. The default is Pillow's limit.
  int64_t max_pixels = 178'956'970;
};

// The result of ImageDecoder::Shrink().
struct ShrunkImage {
  int64_t denominator = 1;
  ImageSize size;  // size of the image divided by the denominator, rounded up
};

// Decodes one image after another, each only where it is needed. Not thread-safe. Memory is reused from image to image.
//
//   ImageDecoder decoder;
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, decoder.Open(bytes));
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageView view, decoder.Decode(CropOf(size)));
//
// The bytes of a file determine its format, not its name. Pixels equal Pillow's Image.open(file).convert("RGB") bit for
// bit, for:
//
// - JPEG, baseline and progressive, with any subsampling, in grey, RGB, YCbCr, CMYK and YCCK. This compares
//   libjpeg-turbo 2.1.5 here with the 3.2.0 in Pillow 13. The two differ only for progressive files with missing scans,
//   which they smooth differently.
// - PNG of every kind. As in Pillow, alpha is dropped and not blended, and grey of 16 bits is clamped at 255.
// - TIFF in strips, tiles or planes, in grey, RGB, CMYK, YCbCr and with a palette, of up to 8 bits a sample, or 16
//   without a palette and planes. Alpha is dropped. Its orientation is applied. Of several images the first is read.
//   JPEG in tiles is not read, and neither are samples that are not unsigned whole numbers.
// - PBM, PGM and PPM, as text and as bytes, with any largest value. As in Pillow, grey with a largest value above 255
// is
//   scaled to 65535 and clamped at 255.
// - BMP without run-length encoding. Alpha is dropped.
// - WebP of one image.
//
// If Pillow reads a kind differently, or this decoder does not know it, it is an error that names the kind. Leptonica's
// messages are silenced in the whole process.
//
// As in torchvision's pil_loader, the orientation in EXIF and colour profiles are ignored. As in Pillow, a truncated
// file is an error, a JPEG of one scan may have a trailer in place of its end marker, and damaged data that libjpeg can
// skip is not. A misplaced JPEG marker is always an error, and so is a wrong checksum of any PNG chunk up to the end of
// the image's data. As in Pillow, the chunks behind are not checked.
//
// Errors do not name the file, since the decoder sees only its bytes.
class ImageDecoder {
 public:
  explicit ImageDecoder(const ImageDecoderOptions& options = {});
  ~ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;

  // Reads the header of the file with the contents `bytes`. The caller must keep `bytes` until the next Open() or the
  // destruction of the decoder.
  //
  // InvalidArgument: the format is unknown, or this kind of it is not supported. ResourceExhausted: the image has more
  // pixels than max_pixels. DataLoss: the file is damaged, or it is a JPEG that is truncated anywhere, even outside the
  // wanted part. A JPEG without an end marker is decoded to know that.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);

  // Makes Decode() decode the image at 1/d of its size. d is the largest denominator that the format supports and that
  // is at most `denominator`. JPEG supports 1, 2, 4 and 8: a smaller image is faster, and has the pixels of libjpeg at
  // that scale. Other formats support only 1. Call it before Decode(), whose `wanted` then refers to the smaller image.
  // The last of several calls applies.
  //
  // InvalidArgument: `denominator` is not positive. FailedPrecondition: as Decode().
  absl::StatusOr<ShrunkImage> Shrink(int64_t denominator);

  // Decodes `wanted`, a part of the image with at least one pixel, and some pixels around it. Call it once after each
  // Open(). The view is valid until the next call.
  //
  // The part of a JPEG above and beside `wanted` is only entropy-decoded, and the part below is not read. A progressive
  // JPEG is entropy-decoded completely. Other formats are decoded completely. Memory: 3 bytes for each pixel of the
  // view (CMYK: 4), and for a progressive file 2 for each sample of the whole image. A progressive file with max_pixels
  // and 100 scans takes 1.8 s and 0.5 GB.
  //
  // InvalidArgument: `wanted` is empty or not inside the image. FailedPrecondition: Open() has not succeeded before.
  // DataLoss: the file is damaged or truncated. ResourceExhausted: the file would take a disproportionate amount of
  // memory or time, for example for more than 100 scans.
  absl::StatusOr<ImageView> Decode(const Rectangle& wanted);

 private:
  struct Decoders;

  ImageDecoderOptions options_;
  std::unique_ptr<Decoders> decoders_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_DECODER_H_
