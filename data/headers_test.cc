// The headers of data do not include torch/types.h, and so neither torch/torch.h nor a header of torch/data: a source
// with one of those takes seconds to compile. torch_dataset.h is the exception.

#include <type_traits>

#include "gtest/gtest.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/data/fake_data.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/idx.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/step_loader.h"
#include "lockstep/data/transforms.h"

// torch/types.h declares torch::Dtype. Without it, this one is found.
struct Dtype {};
namespace torch {
using FoundDtype = Dtype;
}

namespace lockstep::data {
namespace {

TEST(Headers, DoNotIncludeTorchTypes) { EXPECT_TRUE((std::is_same_v<torch::FoundDtype, ::Dtype>)); }

}  // namespace
}  // namespace lockstep::data
