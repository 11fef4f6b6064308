// The C++ side of image_peer_test.py.
//
//   image_program jpegs FOLDER   writes JPEG files of kinds that Pillow does not write to FOLDER
//   image_program decode < LIST  for each line of LIST, PATH TOP LEFT HEIGHT WIDTH, or PATH alone for the whole: the
//                                bytes of "HEIGHT WIDTH" or of an error's message, a newline, and the pixels if any

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/data/testing/jpeg_files.h"

namespace lockstep::data {
namespace {

std::string Contents(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

// Writes the pixels of `part`, or of the whole image where its height is 0.
absl::Status Decode(ImageDecoder& decoder, const std::string& bytes, Rectangle part) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, decoder.Open(bytes));
  if (part.height == 0) part = {0, 0, size.height, size.width};
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageView view, decoder.Decode(part));
  std::cout << size.height << " " << size.width << "\n";
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    const uint8_t* const row = view.pixels + (y - view.covers.top) * view.stride + (part.left - view.covers.left) * 3;
    std::cout.write(reinterpret_cast<const char*>(row), part.width * 3);
  }
  return absl::OkStatus();
}

void DecodeAll() {
  ImageDecoder decoder;
  for (std::string line, path; std::getline(std::cin, line);) {
    std::istringstream fields(line);
    Rectangle part;
    fields >> path >> part.top >> part.left >> part.height >> part.width;
    const absl::Status status = Decode(decoder, Contents(path), part);
    if (!status.ok()) std::cout << status.message() << "\n";
  }
}

void WriteJpegs(const std::string& folder) {
  const std::vector<std::vector<ImageSize>> samplings = {
      {{1, 1}}, {{1, 2}}, {{2, 2}}, {{2, 1}}, {{1, 4}}, {{4, 1}}, {{2, 2}, {2, 1}, {1, 2}}};
  testing::JpegOptions options;
  for (const testing::JpegColors colors :
       {testing::JpegColors::kYcc, testing::JpegColors::kRgb, testing::JpegColors::kGrey, testing::JpegColors::kCmyk,
        testing::JpegColors::kYcck}) {
    options.colors = colors;
    for (const auto& sampling : samplings) {
      options.sampling = sampling;
      for (options.size = {3, 4}; options.size.height < 200;
           options.size = {3 * options.size.height + 1, 2 * options.size.width + 3}) {
        options.progressive = !options.progressive;
        static int number = 0;
        std::ofstream(absl::StrCat(folder, "/", number++, ".jpg"), std::ios::binary) << Jpeg(options);
      }
    }
  }
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "decode") {
    DecodeAll();
  } else if (arguments.size() == 2 && arguments[0] == "jpegs") {
    WriteJpegs(arguments[1]);
  } else {
    return absl::InvalidArgumentError("usage: image_program jpegs FOLDER | decode");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  const absl::Status status = lockstep::data::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
