// The networks by the names that torchvision gives them, for programs with an --arch.

#ifndef LOCKSTEP_MODELS_REGISTRY_H_
#define LOCKSTEP_MODELS_REGISTRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/image_classifier.h"
#include "lockstep/models/resnet.h"

namespace lockstep::models {

// resnet18, ...: all that Make() knows, in order of kind and size.
std::vector<std::string> Names();

// The network `arch` with weights as torchvision's after the same manual seed, as its own function makes it.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(models::ImageClassifier net, models::Make(FLAGS_arch, dataset.classes().size()));
//
// InvalidArgument: there is no such name (the message lists those there are), or num_classes < 1. What LibTorch or
// `norm` throw comes as TorchStatus() (base/torch_status.h) has it.
absl::StatusOr<ImageClassifier> Make(absl::string_view arch, int64_t num_classes = 1000, NormFactory norm = BatchNorm);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_REGISTRY_H_
