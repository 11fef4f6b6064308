// The pixels of image files, as Pillow's convert("RGB") has them for torchvision.

#ifndef LOCKSTEP_DATA_IMAGE_DECODER_H_
#define LOCKSTEP_DATA_IMAGE_DECODER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"

namespace lockstep::data {

struct ImageDecoderOptions {
  // An image with more is refused before memory is taken for it. The default is where Pillow refuses too.
  int64_t max_pixels = 178'956'970;
};

// Decodes one image after another, each only where it is wanted. For one thread; memory is kept from image to image.
//
//   ImageDecoder decoder;
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, decoder.Open(bytes));
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageView view, decoder.Decode(CropOf(size)));
//
// What a file is, its bytes say and not its name. Pixels are to the bit those of Pillow's
// Image.open(file).convert("RGB"):
//
// - JPEG, baseline and progressive, with any subsampling, in grey, RGB, YCbCr, CMYK and YCCK. What was compared is
//   libjpeg-turbo 2.1.5 here and the 3.2.0 in Pillow 13 there; only a progressive file that lacks scans they smooth
//   otherwise.
// - PNG of every kind. As in Pillow, alpha is dropped and not blended, and grey of 16 bits is cut off above 255.
// - WebP of one image; BMP of 1, 8 and 24 bits a pixel; PBM, PGM and PPM whose largest value is 255; TIFF in bits, in
//   grey, in grey with alpha and in RGB. What Leptonica reads otherwise than Pillow, or not at all, is an error:
//   palettes in TIFF, CMYK, RGB with alpha, animations. Leptonica's messages are silenced in the whole process.
//
// As in torchvision's pil_loader, EXIF's orientation has no say, nor has a colour profile. As in Pillow, a truncated
// file is an error, and damaged data that libjpeg can pass over is not; a misplaced marker of JPEG and a wrong
// checksum of PNG always are.
//
// Errors do not name the file: the caller knows it.
class ImageDecoder {
 public:
  explicit ImageDecoder(const ImageDecoderOptions& options = {});
  ~ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;

  // Reads the header of the file whose contents are `bytes`, which the caller keeps until the next Open() or the end.
  //
  // InvalidArgument: of no known format, or of a kind of it that is not read. ResourceExhausted: more pixels than
  // max_pixels. DataLoss: damaged, or JPEG that is truncated anywhere, whether or not the wanted part is there.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);

  // Decodes `wanted`, a part of the image with at least one pixel, and some pixels around it. Once after each Open().
  // The view is valid until the next call.
  //
  // Of JPEG, what is above and beside `wanted` is only unpacked, and what is below not even that; of a progressive one,
  // all is unpacked. Of other formats the whole image is decoded. Takes 3 bytes a pixel of what the view covers, of
  // CMYK 4, and for a progressive file 2 for each sample of the whole: at max_pixels, in 100 scans, 1.8 s and 0.5 GB.
  //
  // InvalidArgument: `wanted` is no such part. FailedPrecondition: no Open() before it that went well. DataLoss:
  // damaged or truncated. ResourceExhausted: the file would take memory or time out of proportion, as one of more than
  // 100 scans.
  absl::StatusOr<ImageView> Decode(const Rectangle& wanted);

 private:
  struct Decoders;

  ImageDecoderOptions options_;
  std::unique_ptr<Decoders> decoders_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_DECODER_H_
