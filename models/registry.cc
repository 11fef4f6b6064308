#include "lockstep/models/registry.h"

#include <torch/nn/modules/container/any.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::models {
namespace {

struct Entry {
  absl::string_view name;
  ImageClassifier (*make)(int64_t num_classes, NormFactory norm, double dropout);
};

template <auto make>
ImageClassifier As(int64_t num_classes, NormFactory norm, double dropout) {
  auto network = make(num_classes, std::move(norm));
  network->set_dropout(dropout);
  return ImageClassifier(torch::nn::AnyModule(network));
}

constexpr Entry kEntries[] = {
    {"resnet18", As<ResNet18>},
    {"resnet34", As<ResNet34>},
    {"resnet50", As<ResNet50>},
    {"resnet101", As<ResNet101>},
    {"resnet152", As<ResNet152>},
    {"resnext50_32x4d", As<ResNeXt50_32x4d>},
    {"resnext101_32x8d", As<ResNeXt101_32x8d>},
    {"resnext101_64x4d", As<ResNeXt101_64x4d>},
    {"wide_resnet50_2", As<WideResNet50_2>},
    {"wide_resnet101_2", As<WideResNet101_2>},
};

}  // namespace

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

absl::StatusOr<ImageClassifier> Make(absl::string_view arch, int64_t num_classes, NormFactory norm, double dropout) {
  const Entry* entry =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& e) { return e.name == arch; });
  if (entry == std::end(kEntries)) {
    return absl::InvalidArgumentError(
        absl::StrCat("models: expected one of ", absl::StrJoin(Names(), ", "), ", found \"", arch, "\""));
  }
  if (num_classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("models: ", arch, ": expected at least 1 class, found ", num_classes));
  }
  return TorchStatusOr(absl::StrCat("models: ", arch),
                       [&] { return entry->make(num_classes, std::move(norm), dropout); });
}

}  // namespace lockstep::models
