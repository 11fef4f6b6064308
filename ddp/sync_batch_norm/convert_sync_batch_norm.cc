#include "lockstep/ddp/sync_batch_norm/convert_sync_batch_norm.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/batch_norms_in_code.h"
#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

namespace lockstep::ddp {
namespace {

using torch::nn::Module;
using Layer = std::shared_ptr<SyncBatchNormImpl>;

// Puts a layer where a container calls it.
using Put = std::function<void(const Layer&)>;

// The places, besides the registration, in which containers hold a child. They call the layer in these places.
std::vector<Put> PlacesIn(Module& parent, const Module* child) {
  std::vector<Put> places;
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&parent)) {
    for (torch::nn::AnyModule& held : *sequential) {
      if (held.ptr().get() == child)
        places.push_back([&held](const Layer& layer) { held = torch::nn::AnyModule(layer); });
    }
  } else if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(&parent)) {
    for (std::shared_ptr<Module>& held : *list) {
      if (held.get() == child) places.push_back([&held](const Layer& layer) { held = layer; });
    }
  } else if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(&parent)) {
    for (auto& held : *dict) {
      if (held.value().get() == child) places.push_back([&held](const Layer& layer) { held.value() = layer; });
    }
  }
  return places;
}

template <typename BatchNorm>
Layer LayerFor(const Module& old, comm::ProcessGroup* group) {
  return typeid(old) == typeid(BatchNorm)
             ? std::make_shared<SyncBatchNormImpl>(static_cast<const BatchNorm&>(old), group)
             : nullptr;
}

// Null for a class derived from BatchNorm.
Layer LayerInPlaceOf(const Module& old, comm::ProcessGroup* group) {
  if (Layer layer = LayerFor<torch::nn::BatchNorm1dImpl>(old, group)) return layer;
  if (Layer layer = LayerFor<torch::nn::BatchNorm2dImpl>(old, group)) return layer;
  return LayerFor<torch::nn::BatchNorm3dImpl>(old, group);
}

bool IsBatchNorm(const Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

std::string Joined(const std::string& path, const std::string& name) {
  return absl::StrCat(path, path.empty() ? "" : ".", name);
}

// Collects the replacements without making them.
class Plan {
 public:
  explicit Plan(comm::ProcessGroup* group) : group_(group) {}

  void AddChildren(Module& parent, const std::string& path) {
    if (const auto* program = dynamic_cast<const BatchNormsInCode*>(&parent)) {
      for (const std::string& name : program->BatchNorms()) in_code_.push_back(Joined(path, name));
    }
    for (const auto& item : parent.named_children()) {
      const std::string child_path = Joined(path, item.key());
      if (IsBatchNorm(*item.value())) {
        Add(parent, item.key(), item.value(), child_path);
      } else {
        AddChildren(*item.value(), child_path);
      }
    }
  }

  // FailedPrecondition, with the names of all layers that cannot be replaced.
  absl::Status Check() const {
    std::vector<std::string> reasons;
    if (!impossible_.empty()) {
      reasons.push_back(absl::StrCat(
          "these BatchNorm layers are members of classes that call them by their type, so they cannot be replaced, and "
          "nothing changed: ",
          absl::StrJoin(impossible_, ", "), "; pass the model a norm factory (ddp::SyncBatchNormFactory) instead"));
    }
    if (!in_code_.empty()) {
      reasons.push_back(absl::StrCat(
          "these batch normalisations are operators of a program that Python exported, so they cannot be replaced, and "
          "nothing changed: ",
          absl::StrJoin(in_code_, ", "),
          "; before the export, use another normalisation in Python, such as GroupNorm"));
    }
    if (reasons.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("ConvertSyncBatchNorm: ", absl::StrJoin(reasons, "; ")));
  }

  int CarryOut() const {
    for (const std::function<void()>& replacement : replacements_) replacement();
    return static_cast<int>(layers_.size());
  }

 private:
  void Add(Module& parent, const std::string& name, const std::shared_ptr<Module>& old, const std::string& path) {
    Layer& layer = layers_[old];
    if (!layer) layer = LayerInPlaceOf(*old, group_);
    std::vector<Put> places = PlacesIn(parent, old.get());
    if (!layer || places.empty()) {
      impossible_.push_back(path);
      return;
    }
    replacements_.push_back([&parent, name, layer = layer, places = std::move(places)] {
      for (const Put& put : places) put(layer);
      parent.replace_module(name, layer);
    });
  }

  comm::ProcessGroup* group_;
  std::map<std::shared_ptr<Module>, Layer> layers_;  // by the layer they replace
  std::vector<std::function<void()>> replacements_;
  std::vector<std::string> impossible_;  // the paths of layers
  std::vector<std::string> in_code_;     // the paths of layers that only a program has
};

}  // namespace

absl::StatusOr<int> ConvertSyncBatchNorm(Module& module, comm::ProcessGroup* group) {
  if (IsBatchNorm(module)) {
    return absl::FailedPreconditionError(
        "ConvertSyncBatchNorm: the module itself is a BatchNorm, which cannot be replaced; make a "
        "SyncBatchNorm from it");
  }
  Plan plan(group);
  plan.AddChildren(module, "");
  const absl::Status status = plan.Check();
  if (!status.ok()) return status;
  return plan.CarryOut();
}

}  // namespace lockstep::ddp
