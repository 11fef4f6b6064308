#include "lockstep/fsdp/full_state_dict.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/deferred/file.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/fsdp/internal/full_optimizer_loader.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"
#include "lockstep/fsdp/internal/state_gatherer.h"
#include "lockstep/fsdp/internal/whole_optimizer.h"

namespace lockstep::fsdp::internal {
namespace {

using checkpoint::DeferredTensors;
using checkpoint::Value;

constexpr char kSave[] = "fsdp::SaveFullStateDict", kLoad[] = "fsdp::LoadFullOptimizerStateDict";

template <typename F>
absl::Status Caught(F f) {
  absl::Status status;
  status.Update(TorchStatus("", [&] { status = f(); }));
  return status;
}

// The module's state dict. `gatherer` must outlive the deferred tensors.
Value DeferModel(const torch::nn::Module& module, const std::vector<ShardedParameter>& sharded,
                 const StateGatherer& gatherer, DeferredTensors& deferred) {
  Value model = checkpoint::StateDict(module);
  std::map<const at::TensorImpl*, at::Tensor> parameters;  // a tied one is deferred once
  for (size_t p = 0; p < sharded.size(); ++p) {
    const at::Tensor& like = sharded[p].tensor;
    parameters.emplace(like.unsafeGetTensorImpl(), deferred.Add(like.sizes(), like.strides(), sharded[p].dtype,
                                                                [&gatherer, p] { return gatherer.BringParameter(p); }));
  }
  for (const auto& item : module.named_parameters()) {
    const auto found = parameters.find(item.value().unsafeGetTensorImpl());
    if (found != parameters.end()) model.Set(item.key(), found->second.detach());  // as StateDict(), one tensor a name
  }
  return model;
}

// `gatherer` must outlive the deferred tensors.
Value DeferOptimizer(const std::vector<ShardedParameter>& parameters, const WholeOptimizer& optimizer,
                     const StateGatherer& gatherer, DeferredTensors& deferred) {
  Value states = Value::Dict(), groups = Value::List();
  int64_t number = 0;
  for (const WholeOptimizer::Group& group : optimizer.groups) {
    Value numbers = Value::List();
    for (const size_t member : group.members) {
      Value state = Value::Dict();
      for (size_t i = 0; i < optimizer.states[member].size(); ++i) {
        const WholeOptimizer::Item& item = optimizer.states[member][i];
        const at::Tensor& like = parameters[member].tensor;
        state.Set(item.key, !item.IsTensor()
                                ? item.value
                                : deferred.Add(like.sizes(), like.strides(), item.dtype,
                                               [&gatherer, member, i] { return gatherer.Bring(member, i); }));
      }
      if (state.size() > 0) states.Set(number, std::move(state));
      numbers.Append(number++);
    }
    Value options = group.options;
    options.Set("params", std::move(numbers));
    groups.Append(std::move(options));
  }
  return Value::Dict({{"state", states}, {"param_groups", groups}});
}

absl::Status Write(absl::string_view path, const torch::nn::Module& module,
                   const std::vector<ShardedParameter>& parameters, const WholeOptimizer& optimizer,
                   const StateGatherer& gatherer, const ComposeFile& compose, const checkpoint::SaveOptions& options) {
  const absl::Status written = Caught([&] {
    DeferredTensors deferred;
    const Value model = DeferModel(module, parameters, gatherer, deferred);
    const Value file = compose(model, DeferOptimizer(parameters, optimizer, gatherer, deferred));
    return checkpoint::SaveDeferred(path, file, deferred, options);
  });
  const absl::Status ended = gatherer.End();
  return written.ok() ? ended : written;
}

}  // namespace

absl::Status SaveFullStateDict(absl::string_view path, const ShardedModule& sharded, const torch::nn::Module& module,
                               const torch::optim::Optimizer& optimizer, const ComposeFile& compose,
                               const checkpoint::SaveOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotKept(sharded));
  const ShardsOnly shards_only(sharded);
  const std::vector<ShardedParameter> parameters = ShardedParametersOf(sharded);
  comm::ProcessGroup* const group = sharded.group();
  LOCKSTEP_ASSIGN_OR_RETURN(const WholeOptimizer whole,
                            GatherOptimizer(optimizer, parameters, group, kSave, Exchange::kGroupsAndStates));
  const StateGatherer gatherer(parameters, whole, group);
  const absl::Status own = group->rank() == 0 ? Write(path, module, parameters, whole, gatherer, compose, options)
                                              : Caught([&] { return gatherer.Serve(); });
  return comm::Agree(group, kSave, own);
}

absl::Status LoadFullOptimizerStateDict(absl::string_view path, const checkpoint::KeyPath& key,
                                        const ShardedModule& sharded, torch::optim::Optimizer& optimizer,
                                        const checkpoint::LoadOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotKept(sharded));
  DeferredTensors deferred;
  const absl::StatusOr<Value> state_dict = checkpoint::LoadDeferred(path, key, deferred, options);
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(sharded.group(), kLoad, state_dict.status()));
  return Annotate(LoadFullOptimizer(*state_dict, deferred, sharded, kLoad, optimizer), path);
}

absl::Status LoadFullOptimizerStateDict(const Value& state_dict, const ShardedModule& sharded,
                                        torch::optim::Optimizer& optimizer) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotKept(sharded));
  return LoadFullOptimizer(state_dict, DeferredTensors(), sharded, kLoad, optimizer);
}

}  // namespace lockstep::fsdp::internal
