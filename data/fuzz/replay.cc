// Runs the fuzzer's entry point over image files of every kind and over damaged copies of them, so that ordinary tests
// cover the cases that fuzzing found. With a folder as its argument it writes the files there instead, for
// tools/fuzz/run.sh.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/data/image.h"
#include "lockstep/data/testing/jpeg_files.h"
#include "lockstep/data/testing/png_files.h"
#include "lockstep/data/testing/tiff_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::data {
namespace {

using testing::JpegColors;

constexpr size_t kCopies = 100;  // of each file cut short, and as many with a bit flipped

void AddJpegs(std::vector<std::string>& files) {
  testing::JpegOptions options;
  options.size = {21, 35};
  options.quality = 50;
  for (const auto colors :
       {JpegColors::kGrey, JpegColors::kRgb, JpegColors::kYcc, JpegColors::kCmyk, JpegColors::kYcck}) {
    options.colors = colors;
    for (const ImageSize& sampling : {ImageSize{1, 1}, {1, 2}, {2, 2}, {2, 1}, {1, 4}}) {
      options.sampling = {sampling};
      for (options.restart_interval = 0; options.restart_interval < 2; ++options.restart_interval) {
        options.progressive = !options.progressive;
        files.push_back(Jpeg(options));
        if (!options.progressive) files.push_back(files.back().substr(0, files.back().size() - 2) + "a trailer");
      }
    }
  }
}

void AddPngs(std::vector<std::string>& files) {
  for (const int colors : {0, 2, 3, 4, 6}) {
    for (const bool interlaced : {false, true}) {
      const testing::PngOptions options = {{5, 3}, 8, colors, interlaced, colors == 3 ? "12 bytes: 4 " : ""};
      files.push_back(Png(options, std::string(100, '\0')));
    }
  }
}

void AddTiffs(std::vector<std::string>& files) {
  using testing::Tiff;
  using testing::TiffOf;
  const std::string data(600, 'd');
  files.push_back(Tiff(TiffOf(5, 3, 6, 8, 3, {{274, {6}}}), {data}));
  files.push_back(Tiff(TiffOf(5, 3, 2, 16, 4, {{284, {1}}, {338, {1}}, {278, {2}}}), {data, data, data}));
  files.push_back(Tiff(TiffOf(5, 3, 5, 8, 4, {{284, {2}}}), {data, data, data, data}));
  files.push_back(Tiff(TiffOf(5, 17, 1, 4, 1, {{322, {16}}, {323, {16}}}), {data, data}));
  files.push_back(Tiff(TiffOf(5, 3, 3, 1, 1, {{320, {1, 2, 3, 4, 5, 6}}}), {data}));
  for (const uint16_t photometric : {2, 6}) {
    const std::string deflated = testing::Deflated(data);
    files.push_back(Tiff(TiffOf(5, 3, photometric, 8, 3, {{259, {8}}, {317, {2}}, {530, {1, 1}}}), {deflated}));
  }
}

// Adds BMP files of 3 by 2 pixels.
void AddBmps(std::vector<std::string>& files) {
  for (const int bits : {1, 4, 8, 16, 24, 32}) {
    for (const int compression : {0, 3}) {
      std::string file(100, '\0');
      file.replace(0, 2, "BM");
      for (const auto& [offset, value] :
           {std::pair(10, 70), {14, 40}, {18, 3}, {22, 2}, {26, 1}, {28, bits}, {30, compression}, {46, 2}}) {
        file[offset] = static_cast<char>(value);
      }
      file.replace(54, 12,
                   bits == 16 ? std::string("\0\xf8\0\0\xe0\7\0\0\x1f\0\0\0", 12)
                              : std::string("\0\0\xff\0\0\xff\0\0\xff\0\0\0", 12));
      files.push_back(file);
    }
  }
}

void AddOthers(std::vector<std::string>& files) {
  files.push_back(absl::StrCat("P6\n3 2\n255\n", std::string(18, 'a')));
  files.push_back(absl::StrCat("P5\n3 2\n255\n", std::string(6, 'b')));
  files.push_back(absl::StrCat("P4\n3   2\n", std::string(2, 'c')));
  files.push_back("P3\n2 1\n255\n1 2 3 4 5 6\n");
  files.push_back("P2\n2 1\n#\n1000\n1 # 2\n3");
  files.push_back("P1 3 2 101#\n010");
  files.push_back(absl::StrCat("P5\n3 2\n1000\n", std::string(12, 'a')));
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  AddJpegs(files);
  AddPngs(files);
  AddTiffs(files);
  AddBmps(files);
  AddOthers(files);
  return files;
}

// On an exact copy, so that a sanitizer sees a read past the end.
void Run(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void RunDamaged(std::string input) {
  Run(input);
  for (size_t copy = 0; copy < kCopies; ++copy) {
    const size_t at = input.size() * copy / kCopies;
    Run(input.substr(0, at));
    const char flipped = static_cast<char>(1 << copy % 8);
    input[at] = static_cast<char>(input[at] ^ flipped);
    Run(input);
    input[at] = static_cast<char>(input[at] ^ flipped);
  }
}

void Write(const std::vector<std::string>& files, const std::string& folder) {
  for (size_t i = 0; i < files.size(); ++i) std::ofstream(absl::StrCat(folder, "/", i), std::ios::binary) << files[i];
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  const std::vector<std::string> files = lockstep::data::Files();
  if (argc > 1) {
    lockstep::data::Write(files, argv[1]);
    return 0;
  }
  for (const std::string& file : files) lockstep::data::RunDamaged(file);
  std::cout << files.size() << " files and their damaged copies" << std::endl;
}
