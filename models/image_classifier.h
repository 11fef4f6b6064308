// One type for all networks that classify images.

#ifndef LOCKSTEP_MODELS_IMAGE_CLASSIFIER_H_
#define LOCKSTEP_MODELS_IMAGE_CLASSIFIER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

namespace lockstep::models {

// Holds a network that is chosen at run time. models::Make() (registry.h) creates one by name.
//
//   models::ImageClassifier net(torch::nn::AnyModule(models::ResNet50()));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));
//   const at::Tensor logits = ddp(images);
//
// The network's parameters, buffers and children are also this module's, under the same names, so the state dict is the
// network's. train(), to(), clone() and zero_grad() apply to the network. Forward costs one additional virtual call.
class ImageClassifierImpl : public torch::nn::Module {
 public:
  // Requires: !network.is_empty(), and its forward takes and returns one tensor.
  explicit ImageClassifierImpl(torch::nn::AnyModule network);

  // float [batch, 3, height, width] -> logits, float [batch, classes].
  at::Tensor forward(const at::Tensor& images) { return network_.forward(images); }

  void train(bool on = true) override;
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;

  // The argument of the constructor. For a ResNet, get<ResNet>() returns the network with its type.
  const torch::nn::AnyModule& network() const { return network_; }

 private:
  torch::nn::AnyModule network_;
};
TORCH_MODULE(ImageClassifier);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_IMAGE_CLASSIFIER_H_
