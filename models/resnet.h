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
#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep::models {

// Creates the normalisation layer that follows a convolution. The layer must take and return float [batch, channels,
// height, width].
using NormFactory = std::function<torch::nn::AnyModule(int64_t channels)>;

// torch::nn::BatchNorm2d.
torch::nn::AnyModule BatchNorm(int64_t channels);

struct BlockOptions {
  int64_t in_channels = 64;
  // The channels inside a BasicBlock. Inside a Bottleneck the number also depends on width_per_group and groups. The
  // block's output has ResNetOptions::Expansion() times as many channels.
  int64_t channels = 64;
  // The output's height and width are the input's divided by the stride, rounded up.
  int64_t stride = 1;
  NormFactory norm = BatchNorm;
  // As in ResNetOptions.
  int64_t groups = 1;
  int64_t width_per_group = 64;
  bool zero_init_residual = false;
  // Dilation of the 3x3 convolution with the stride.
  int64_t dilation = 1;
};

// Two 3x3 convolutions and a skip connection. Throws c10::ValueError unless groups is 1, width_per_group is 64 and
// dilation is 1.
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
  torch::nn::Sequential downsample_{nullptr};  // null: the input itself is added
};
TORCH_MODULE(BasicBlock);

// A 1x1, a 3x3 and a 1x1 convolution and a skip connection. The 3x3 convolution has the stride, the groups and the
// dilation.
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
  // The number of blocks in layer1 to layer4.
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
  bool bottleneck = false;
  int64_t num_classes = 1000;
  // Called once for each normalisation layer, in the order of the state dict. Exception: downsample's layer comes
  // before the others of its block.
  NormFactory norm = BatchNorm;
  // Bottleneck's 3x3 convolutions have groups * channels * width_per_group / 64 channels. More groups make a ResNeXt
  // (Xie et al., Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017). A greater width makes a wide
  // ResNet (Zagoruyko and Komodakis, Wide Residual Networks, BMVC 2016).
  int64_t groups = 1;
  int64_t width_per_group = 64;
  // Initialises the weight of each block's last normalisation layer to 0, so that the block initially has no effect
  // (Goyal et al., arXiv:1706.02677). A layer without a weight does not change.
  bool zero_init_residual = false;
  // For layer2 to layer4: whether the 3x3 convolutions double their dilation instead of halving height and width.
  std::array<bool, 3> replace_stride_with_dilation = {};

  int64_t Expansion() const { return bottleneck ? BottleneckImpl::kExpansion : BasicBlockImpl::kExpansion; }
};

// An image classifier. Parameters and buffers have torchvision's names (conv1.weight, layer2.0.downsample.1.bias,
// fc.weight, ...), shapes and order, so the state dicts of torchvision's models load (//checkpoint:state_dict).
//
//   models::ResNet net = models::ResNet18();                     // or models::ResNet with your own options
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
//   const at::Tensor logits = net(images);
//
// Convolutions are initialised from Kaiming's normal distribution by fan-out. Layers are created and initialised in
// torchvision's order, so after torch::manual_seed(s) the weights equal torchvision's after torch.manual_seed(s).
// clone() returns a copy that shares no memory, if the clones of the normalisation layers do not either.
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl> {
 public:
  explicit ResNetImpl(ResNetOptions options = {});
  void reset() override;

  // float [batch, 3, height, width] -> logits, float [batch, num_classes]. Any height and width; torchvision's weights
  // are for 224. On the CPU `images` may also be in oneDNN's blocked layout (images.to_mkldnn()). Then all activations
  // up to the last layer are in it, forward and backward, if the normalisation layers support it, as BatchNorm does.
  // Parameters, gradients and logits keep the usual layout.
  at::Tensor forward(const at::Tensor& images);

  // In training, each feature of an image is zeroed before the last layer with this probability, and the others are
  // scaled by 1 / (1 - rate) (Srivastava et al., Dropout, JMLR 2014). At first 0, as in torchvision. Throws
  // c10::ValueError unless 0 <= rate < 1.
  void set_dropout(double rate);

 private:
  torch::nn::Sequential MakeLayer(size_t layer);
  torch::nn::AnyModule MakeBlock(int64_t channels, int64_t stride, int64_t dilation);
  void InitializeConvolutions();

  ResNetOptions options_;
  double dropout_ = 0;
  int64_t in_channels_ = 64, dilation_ = 1;  // of the next block to be created
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::AnyModule bn1_;
  std::array<torch::nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

// The published sizes, in millions of parameters for 1000 classes: 11.7, 21.8, 25.6, 44.5, 60.2.
ResNet ResNet18(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet34(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet50(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet101(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNet152(int64_t num_classes = 1000, NormFactory norm = BatchNorm);

// ResNeXt, by groups and their width: 25.0, 88.8 and 83.5 million.
ResNet ResNeXt50_32x4d(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNeXt101_32x8d(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet ResNeXt101_64x4d(int64_t num_classes = 1000, NormFactory norm = BatchNorm);

// Twice the width: 68.9 and 126.9 million.
ResNet WideResNet50_2(int64_t num_classes = 1000, NormFactory norm = BatchNorm);
ResNet WideResNet101_2(int64_t num_classes = 1000, NormFactory norm = BatchNorm);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_RESNET_H_
