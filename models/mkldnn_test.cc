// The networks on images in oneDNN's blocked layout.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "lockstep/models/resnet.h"

namespace lockstep::models {
namespace {

struct Pass {
  at::Tensor logits;
  std::vector<at::Tensor> gradients, buffers;
};

// A forward and backward of training, then a forward in evaluation.
Pass RunPass(ResNet net, const at::Tensor& images) {
  Pass pass;
  const at::Tensor logits = net(images);
  logits.square().sum().backward();
  for (const at::Tensor& parameter : net->parameters()) pass.gradients.push_back(parameter.grad());
  net->eval();
  const torch::NoGradGuard no_grad;
  pass.logits = at::cat({logits.detach(), net(images)});
  pass.buffers = net->buffers();
  return pass;
}

double RelativeError(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

void ExpectClose(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double error) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_FALSE(found[i].is_mkldnn()) << i;
    EXPECT_LT(RelativeError(found[i].to(at::kFloat), expected[i].to(at::kFloat)), error) << i;
  }
}

// Shallow ones: depth amplifies rounding, in any layout.
TEST(ImagesInOneDnnsLayout, HaveTheSameLogitsGradientsAndStatistics) {
  const ResNetOptions resnext = {{1, 1, 1, 1}, /*bottleneck=*/true, 10,
                                 BatchNorm,    /*groups=*/32,       /*width_per_group=*/4};
  for (const ResNetOptions& options : {ResNetOptions{{2, 2, 2, 2}, false, 10}, resnext}) {
    torch::manual_seed(3);
    const at::Tensor images = torch::randn({4, 3, 96, 96});
    const ResNet net(options), same(std::dynamic_pointer_cast<ResNetImpl>(net->clone()));
    const Pass expected = RunPass(net, images), found = RunPass(same, images.to_mkldnn());
    ExpectClose({found.logits}, {expected.logits}, 1e-4);
    // One input of a ReLU that rounding takes to the other side of 0 changes a gradient by a hundredth.
    ExpectClose(found.gradients, expected.gradients, 5e-2);
    ExpectClose(found.buffers, expected.buffers, 1e-4);
  }
}

}  // namespace
}  // namespace lockstep::models
