#include "lockstep/examples/fashion_mnist/testing/small_data.h"

#include <ATen/core/Tensor.h>
#include <stdlib.h>

#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/data/idx.h"
#include "lockstep/data/testing/idx_files.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples::testing {

std::string RealData() { return absl::StrCat(getenv("TEST_SRCDIR"), "/lockstep_fashion_mnist"); }

void WriteSubset(const std::string& folder, const std::string& prefix, int64_t count) {
  const std::string source = RealData() + "/" + prefix;
  const at::Tensor images = data::ReadIdx(source + "-images-idx3-ubyte.gz")->narrow(0, 0, count);
  const at::Tensor labels = data::ReadIdx(source + "-labels-idx1-ubyte.gz")->narrow(0, 0, count);
  const auto bytes = [](const at::Tensor& t) {
    return std::vector<uint8_t>(t.data_ptr<uint8_t>(), t.data_ptr<uint8_t>() + t.numel());
  };
  const auto n = static_cast<uint32_t>(count);
  std::ofstream(folder + "/" + prefix + "-images-idx3-ubyte") << data::testing::Idx({n, 28, 28}, bytes(images));
  std::ofstream(folder + "/" + prefix + "-labels-idx1-ubyte") << data::testing::Idx({n}, bytes(labels));
}

const std::string& SmallData() {
  static const std::string* const folder = [] {
    auto* made = new std::string(launch::testing::NewFolder());
    WriteSubset(*made, "train", 2000);
    WriteSubset(*made, "t10k", 301);
    return made;
  }();
  return *folder;
}

}  // namespace lockstep::examples::testing
