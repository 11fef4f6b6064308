// Images of noise, for trainers without a dataset: torchvision.datasets.FakeData.

#ifndef LOCKSTEP_DATA_FAKE_DATA_H_
#define LOCKSTEP_DATA_FAKE_DATA_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"

namespace lockstep::data {

struct FakeDataOptions {
  int64_t size = 1000;
  // Channels, height, width.
  std::array<int64_t, 3> image_size = {3, 224, 224};
  int64_t num_classes = 10;
  // Added to the index to seed the example. Another offset gives other images.
  int64_t random_offset = 0;
};

// Each example depends only on its index, and equals that of torchvision's FakeData(..., transform=ToTensor()) bit for
// bit.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto fake, FakeData::Create({.size = 1281167, .num_classes = 1000}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Example first, fake.Get(0, random));
class FakeData : public Dataset {
 public:
  // InvalidArgument: size is negative, or image_size or num_classes is not positive.
  static absl::StatusOr<FakeData> Create(const FakeDataOptions& options = {});

  int64_t size() const override { return options_.size; }

  // data: float of shape image_size in [0, 1], in steps of 1/255. target: int64 [] in [0, num_classes). Draws nothing
  // from `random`.
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override;

 private:
  explicit FakeData(const FakeDataOptions& options) : options_(options) {}

  FakeDataOptions options_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_FAKE_DATA_H_
