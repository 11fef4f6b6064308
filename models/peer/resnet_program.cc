// The C++ side of resnet_peer_test.py.
//
//   resnet_program names                      prints the names that the registry knows, one a line
//   resnet_program NAME INITIAL FROM LOGITS   makes NAME after manual seed 11 and saves its state dict to INITIAL;
//   loads
//                                             FROM, {"state_dict", "images"}, strictly; saves the logits to LOGITS
//
// NAME is the registry's, or one of resnet18_zero_init_residual and resnet50_dilated, which have that option.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/any.h>
#include <torch/utils.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/models/image_classifier.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/resnet.h"

namespace lockstep::models {
namespace {

using checkpoint::Value;

ImageClassifier With(const ResNetOptions& options) { return ImageClassifier(torch::nn::AnyModule(ResNet(options))); }

absl::StatusOr<ImageClassifier> MakeNamed(const std::string& name) {
  ResNetOptions options;
  if (name == "resnet18_zero_init_residual") {
    options.zero_init_residual = true;
    return With(options);
  }
  if (name == "resnet50_dilated") {
    options.blocks = {3, 4, 6, 3};
    options.bottleneck = true;
    options.replace_stride_with_dilation = {false, true, true};
    return With(options);
  }
  return Make(name);
}

absl::Status Compare(const std::string& name, const std::string& initial, const std::string& from,
                     const std::string& to) {
  torch::manual_seed(11);
  LOCKSTEP_ASSIGN_OR_RETURN(ImageClassifier net, MakeNamed(name));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(initial, checkpoint::StateDict(*net)));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(from));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::GetDict(file, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor images, checkpoint::GetTensor(file, "images"));
  net->eval();
  const at::NoGradGuard no_grad;
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor logits, TorchStatusOr("forward", [&] { return net(images); }));
  return checkpoint::Save(to, logits);
}

absl::Status Run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  if (arguments.size() == 4) return Compare(arguments[0], arguments[1], arguments[2], arguments[3]);
  if (arguments != std::vector<std::string>{"names"}) {
    return absl::InvalidArgumentError("usage: resnet_program names | NAME INITIAL FROM LOGITS");
  }
  for (const std::string& name : Names()) std::puts(name.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::models

int main(int argc, char** argv) {
  const absl::Status status = lockstep::models::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
