#include "lockstep/models/image_classifier.h"

#include <utility>

namespace lockstep::models {

ImageClassifierImpl::ImageClassifierImpl(torch::nn::AnyModule network) : network_(std::move(network)) {
  const std::shared_ptr<torch::nn::Module> module = network_.ptr();
  for (const auto& child : module->named_children()) register_module(child.key(), child.value());
  for (const auto& parameter : module->named_parameters(/*recurse=*/false)) {
    register_parameter(parameter.key(), parameter.value(), parameter.value().requires_grad());
  }
  for (const auto& buffer : module->named_buffers(/*recurse=*/false)) register_buffer(buffer.key(), buffer.value());
}

void ImageClassifierImpl::train(bool on) {
  torch::nn::Module::train(on);
  network_.ptr()->train(on);  // the children are set already, the network itself is not
}

std::shared_ptr<torch::nn::Module> ImageClassifierImpl::clone(const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<ImageClassifierImpl>(network_.clone(device));
  copy->train(is_training());
  return copy;
}

}  // namespace lockstep::models
