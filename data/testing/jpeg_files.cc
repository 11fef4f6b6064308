#include "lockstep/data/testing/jpeg_files.h"

#include <cstdint>
#include <cstdlib>
#include <random>

#include "lockstep/data/internal/libjpeg.h"

namespace lockstep::data::testing {
namespace {

struct Spaces {
  J_COLOR_SPACE in, out;
  int components;
};

Spaces SpacesOf(JpegColors colors) {
  switch (colors) {
    case JpegColors::kGrey:
      return {JCS_GRAYSCALE, JCS_GRAYSCALE, 1};
    case JpegColors::kRgb:
      return {JCS_RGB, JCS_RGB, 3};
    case JpegColors::kYcc:
      return {JCS_RGB, JCS_YCbCr, 3};
    case JpegColors::kCmyk:
      return {JCS_CMYK, JCS_CMYK, 4};
    case JpegColors::kYcck:
      return {JCS_CMYK, JCS_YCCK, 4};
  }
  return {};
}

void Configure(jpeg_compress_struct& jpeg, const JpegOptions& options) {
  const Spaces spaces = SpacesOf(options.colors);
  jpeg.image_height = options.size.height;
  jpeg.image_width = options.size.width;
  jpeg.input_components = spaces.components;
  jpeg.in_color_space = spaces.in;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, spaces.out);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg.restart_interval = options.restart_interval;
  for (int i = 0; i < jpeg.num_components; ++i) {
    const ImageSize factors = i < options.sampling.size() ? options.sampling[i] : ImageSize{1, 1};
    jpeg.comp_info[i].v_samp_factor = factors.height;
    jpeg.comp_info[i].h_samp_factor = factors.width;
  }
}

uint8_t Sample(int64_t y, int64_t x, int component, uint32_t noise) {
  const int64_t slope = component == 0 ? 3 * x : component == 1 ? 2 * y + x : 5 * y - 2 * x;
  return static_cast<uint8_t>((slope & 0xff) * 3 / 4 + noise % 64);
}

void WriteRows(jpeg_compress_struct& jpeg, const std::vector<uint8_t>& pixels) {
  std::minstd_rand noise(jpeg.image_width * 1000 + jpeg.image_height);
  std::vector<uint8_t> row(jpeg.image_width * jpeg.input_components);
  while (jpeg.next_scanline < jpeg.image_height) {
    for (size_t i = 0; i < row.size(); ++i) {
      const int component = i % jpeg.input_components;
      row[i] = pixels.empty() ? Sample(jpeg.next_scanline, i / jpeg.input_components, component, noise() >> 8)
                              : pixels[jpeg.next_scanline * row.size() + i];
    }
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&jpeg, &rows, 1);
  }
}

}  // namespace

std::string Jpeg(const JpegOptions& options) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);  // which ends the program
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  Configure(jpeg, options);
  jpeg_start_compress(&jpeg, TRUE);
  WriteRows(jpeg, options.pixels);
  jpeg_finish_compress(&jpeg);
  std::string result(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return result;
}

std::string WithSize(std::string jpeg, const ImageSize& size) {
  const size_t frame = jpeg.find("\xff\xc0");
  const char written[] = {static_cast<char>(size.height >> 8), static_cast<char>(size.height),
                          static_cast<char>(size.width >> 8), static_cast<char>(size.width)};
  return jpeg.replace(frame + 5, sizeof(written), written, sizeof(written));
}

}  // namespace lockstep::data::testing
