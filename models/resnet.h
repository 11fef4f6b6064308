// Residual networks (He et al., Deep Residual Learning for Image Recognition, CVPR 2016), as torchvision defines them.

#ifndef LOCKSTEP_MODELS_RESNET_H_
#define LOCKSTEP_MODELS_RESNET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <functional>

namespace lockstep::models {

// Makes the normalisation layer that follows a convolution: of a module that takes and returns float
// [batch, channels, height, width].
using NormFactory = std::function<torch::nn::AnyModule(int64_t channels)>;

// torch::nn::BatchNorm2d.
torch::nn::AnyModule BatchNorm(int64_t channels);

struct BlockOptions {
  int64_t in_channels = 64;
  // Of the 3x3 convolutions. The block's output has ResNetOptions::Expansion() times as many channels.
  int64_t channels = 64;
  // Of the block: its output is in height and width the input's divided by it, rounded up.
  int64_t stride = 1;
  NormFactory norm = BatchNorm;
};

// Two 3x3 convolutions beside a connection that skips them.
class BasicBlockImpl : public torch::nn::Cloneable<BasicBlockImpl> {
 public:
  static constexpr int64_t kExpansion = 1;
  explicit BasicBlockImpl(BlockOptions options);
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

 private:
  BlockOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::AnyModule bn1_, bn2_;
  torch::nn::Sequential downsample_{nullptr};  // null: the input is added as it is
};
TORCH_MODULE(BasicBlock);

// A 1x1, a 3x3 and a 1x1 convolution beside a connection that skips them; the 3x3 one has the stride.
class BottleneckImpl : public torch::nn::Cloneable<BottleneckImpl> {
 public:
  static constexpr int64_t kExpansion = 4;
  explicit BottleneckImpl(BlockOptions options);
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

 private:
  BlockOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::AnyModule bn1_, bn2_, bn3_;
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResNetOptions {
  // Of layer1 to layer4.
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
  bool bottleneck = false;
  int64_t num_classes = 1000;
  // Called once for each normalisation layer, in the order of the state dict, but for downsample's, which comes before
  // its block's others.
  NormFactory norm = BatchNorm;

  int64_t Expansion() const { return bottleneck ? BottleneckImpl::kExpansion : BasicBlockImpl::kExpansion; }
};

// An image classifier. Parameters and buffers have torchvision's names (conv1.weight, layer2.0.downsample.1.bias,
// fc.weight, ...), shapes and order, so state dicts of torchvision's models load (//checkpoint:state_dict).
//
//   models::ResNet net = models::ResNet18();                     // or ResNetImpl's options of one's own
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
//   const at::Tensor logits = net(images);
//
// Convolutions start from Kaiming's normal distribution by fan-out; layers are made and initialised in torchvision's
// order, so after torch::manual_seed(s) they are what torchvision gives after torch.manual_seed(s). clone() makes a
// copy with memory of its own, if the normalisation layers have it too.
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl> {
 public:
  explicit ResNetImpl(ResNetOptions options = {});
  void reset() override;

  // float [batch, 3, height, width] -> logits, float [batch, num_classes]. Any height and width; torchvision's weights
  // are for 224.
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Sequential MakeLayer(int64_t channels, int64_t blocks, int64_t stride);
  torch::nn::AnyModule MakeBlock(int64_t channels, int64_t stride);
  void InitializeConvolutions();

  ResNetOptions options_;
  int64_t in_channels_ = 64;  // of the next block to be made
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::array<torch::nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

// The published sizes: 11,689,512, 21,797,672 and 25,557,032 parameters for 1000 classes.
ResNet ResNet18(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet34(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet50(int64_t num_classes = 1000, NormFactory norm = BatchNorm);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_RESNET_H_
