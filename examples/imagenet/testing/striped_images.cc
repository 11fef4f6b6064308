#include "lockstep/examples/imagenet/testing/striped_images.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lockstep/data/testing/jpeg_files.h"

namespace lockstep::examples::testing {

void WriteStripedImages(const std::string& folder, int images) {
  for (int i = 0; i < 2 * images; ++i) {
    const std::string directory = absl::StrCat(folder, i % 2 == 0 ? "/cat/" : "/dog/");
    std::filesystem::create_directories(directory);
    data::testing::JpegOptions options;
    options.size = {30 + i % 5, 40};
    options.colors = data::testing::JpegColors::kGrey;
    for (int y = 0; y < options.size.height; ++y) {
      for (int x = 0; x < options.size.width; ++x)
        options.pixels.push_back((i % 2 == 0 ? y : x) / 5 % 2 == 0 ? 20 : 230);
    }
    std::ofstream(absl::StrCat(directory, i, ".jpg"), std::ios::binary) << data::testing::Jpeg(options);
  }
}

}  // namespace lockstep::examples::testing
