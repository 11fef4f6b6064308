// Networks by torchvision's names, for programs with a flag --arch.

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

// All names that Make() accepts (resnet18, ...), ordered by kind and size.
std::vector<std::string> Names();

// Creates the network `arch`. Its weights equal torchvision's after the same manual seed.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(models::ImageClassifier net, models::Make(FLAGS_arch, dataset.classes().size()));
//
// In training, `dropout` is the probability with which each feature is zeroed before the last layer.
//
// InvalidArgument: the name is unknown (the message lists the known names), num_classes < 1, or dropout is not in
// [0, 1). Exceptions of LibTorch or `norm` are converted by TorchStatus() (base/torch_status.h).
absl::StatusOr<ImageClassifier> Make(absl::string_view arch, int64_t num_classes = 1000, NormFactory norm = BatchNorm,
                                     double dropout = 0);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_REGISTRY_H_
