#include "lockstep/models/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <c10/util/Exception.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::models {
namespace {

torch::nn::Conv2dOptions ConvOptions(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false);
}

torch::nn::Conv2d Conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(ConvOptions(in, out, kernel, stride));
}

// The layers that make the skipped input fit the block's output; null if it already fits.
torch::nn::Sequential Downsample(const BlockOptions& options, int64_t expansion) {
  const int64_t out = options.channels * expansion;
  if (options.stride == 1 && options.in_channels == out) return nullptr;
  torch::nn::Sequential downsample;
  downsample->push_back(Conv(options.in_channels, out, 1, options.stride));
  downsample->push_back(options.norm(out));
  return downsample;
}

void ZeroWeight(const torch::nn::AnyModule& norm) {
  const auto parameters = norm.ptr()->named_parameters(/*recurse=*/false);
  if (const at::Tensor* weight = parameters.find("weight")) torch::nn::init::zeros_(*weight);
}

}  // namespace

torch::nn::AnyModule BatchNorm(int64_t channels) {
  return torch::nn::AnyModule(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(channels)));
}

BasicBlockImpl::BasicBlockImpl(BlockOptions options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(options_.groups == 1 && options_.width_per_group == 64 && options_.dilation == 1,
                    "BasicBlock: expected groups 1, width_per_group 64 and dilation 1, found ", options_.groups, ", ",
                    options_.width_per_group, " and ", options_.dilation);
  reset();
}

void BasicBlockImpl::reset() {
  const int64_t channels = options_.channels;
  downsample_ = Downsample(options_, kExpansion);
  conv1_ = register_module("conv1", Conv(options_.in_channels, channels, 3, options_.stride));
  bn1_ = options_.norm(channels);
  register_module("bn1", bn1_.ptr());
  conv2_ = register_module("conv2", Conv(channels, channels, 3, 1));
  bn2_ = options_.norm(channels);
  register_module("bn2", bn2_.ptr());
  if (options_.zero_init_residual) ZeroWeight(bn2_);
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor BasicBlockImpl::forward(const at::Tensor& input) {
  at::Tensor x = bn1_.forward(conv1_(input)).relu_();
  x = bn2_.forward(conv2_(x));
  x += downsample_ ? downsample_->forward(input) : input;
  return x.relu_();
}

BottleneckImpl::BottleneckImpl(BlockOptions options) : options_(std::move(options)) { reset(); }

void BottleneckImpl::reset() {
  const int64_t width = options_.channels * options_.width_per_group / 64 * options_.groups;
  const int64_t out = options_.channels * kExpansion, dilation = options_.dilation;
  downsample_ = Downsample(options_, kExpansion);
  conv1_ = register_module("conv1", Conv(options_.in_channels, width, 1, 1));
  bn1_ = options_.norm(width);
  register_module("bn1", bn1_.ptr());
  const torch::nn::Conv2dOptions conv2 =
      ConvOptions(width, width, 3, options_.stride).padding(dilation).dilation(dilation).groups(options_.groups);
  conv2_ = register_module("conv2", torch::nn::Conv2d(conv2));
  bn2_ = options_.norm(width);
  register_module("bn2", bn2_.ptr());
  conv3_ = register_module("conv3", Conv(width, out, 1, 1));
  bn3_ = options_.norm(out);
  register_module("bn3", bn3_.ptr());
  if (options_.zero_init_residual) ZeroWeight(bn3_);
  if (downsample_) register_module("downsample", downsample_);
}

at::Tensor BottleneckImpl::forward(const at::Tensor& input) {
  at::Tensor x = bn1_.forward(conv1_(input)).relu_();
  x = bn2_.forward(conv2_(x)).relu_();
  x = bn3_.forward(conv3_(x));
  x += downsample_ ? downsample_->forward(input) : input;
  return x.relu_();
}

ResNetImpl::ResNetImpl(ResNetOptions options) : options_(std::move(options)) { reset(); }

void ResNetImpl::reset() {
  in_channels_ = 64;
  dilation_ = 1;
  conv1_ = register_module("conv1", Conv(3, in_channels_, 7, 2));
  bn1_ = options_.norm(in_channels_);
  register_module("bn1", bn1_.ptr());
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i] = register_module(absl::StrCat("layer", i + 1), MakeLayer(i));
  fc_ = register_module("fc", torch::nn::Linear(in_channels_, options_.num_classes));
  InitializeConvolutions();
}

torch::nn::Sequential ResNetImpl::MakeLayer(size_t layer) {
  const bool dilate = layer > 0 && options_.replace_stride_with_dilation[layer - 1];
  const int64_t channels = int64_t{64} << layer, stride = layer == 0 || dilate ? 1 : 2;
  torch::nn::Sequential blocks;
  blocks->push_back(
      MakeBlock(channels, stride, dilation_));  // torchvision gives the first block the previous layer's dilation
  if (dilate) dilation_ *= 2;
  for (int64_t i = 1; i < options_.blocks[layer]; ++i) blocks->push_back(MakeBlock(channels, 1, dilation_));
  return blocks;
}

torch::nn::AnyModule ResNetImpl::MakeBlock(int64_t channels, int64_t stride, int64_t dilation) {
  const BlockOptions block{in_channels_,
                           channels,
                           stride,
                           options_.norm,
                           options_.groups,
                           options_.width_per_group,
                           options_.zero_init_residual,
                           dilation};
  in_channels_ = channels * options_.Expansion();
  return options_.bottleneck ? torch::nn::AnyModule(Bottleneck(block)) : torch::nn::AnyModule(BasicBlock(block));
}

void ResNetImpl::InitializeConvolutions() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = bn1_.forward(conv1_(images)).relu_();
  x = at::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  for (torch::nn::Sequential& layer : layers_) x = layer->forward(x);
  x = at::adaptive_avg_pool2d(x, {1, 1});
  x = (x.is_mkldnn() ? x.to_dense() : x).flatten(1);
  if (dropout_ > 0) x = at::dropout(x, dropout_, is_training());
  return fc_(x);
}

void ResNetImpl::set_dropout(double rate) {
  TORCH_CHECK_VALUE(rate >= 0 && rate < 1, "expected a dropout rate of at least 0 and less than 1, found ", rate);
  dropout_ = rate;
}

ResNet ResNet18(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{2, 2, 2, 2}, false, num_classes, std::move(norm)});
}

ResNet ResNet34(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 6, 3}, false, num_classes, std::move(norm)});
}

ResNet ResNet50(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 6, 3}, true, num_classes, std::move(norm)});
}

ResNet ResNet101(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 23, 3}, true, num_classes, std::move(norm)});
}

ResNet ResNet152(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 8, 36, 3}, true, num_classes, std::move(norm)});
}

ResNet ResNeXt50_32x4d(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 6, 3}, true, num_classes, std::move(norm), 32, 4});
}

ResNet ResNeXt101_32x8d(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 23, 3}, true, num_classes, std::move(norm), 32, 8});
}

ResNet ResNeXt101_64x4d(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 23, 3}, true, num_classes, std::move(norm), 64, 4});
}

ResNet WideResNet50_2(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 6, 3}, true, num_classes, std::move(norm), 1, 128});
}

ResNet WideResNet101_2(int64_t num_classes, NormFactory norm) {
  return ResNet(ResNetOptions{{3, 4, 23, 3}, true, num_classes, std::move(norm), 1, 128});
}

}  // namespace lockstep::models
