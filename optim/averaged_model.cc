#include "lockstep/optim/averaged_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

void CheckDecay(double decay) {
  if (!(decay >= 0 && decay <= 1))
    ThrowIfError(absl::InvalidArgumentError(absl::StrCat("decay is ", decay, ", expected 0 to 1")));
}

bool HasFractions(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

// The parameters, and with `buffers` the buffers after them.
Tensors TensorsOf(const torch::nn::Module& module, bool buffers) {
  Tensors tensors = module.parameters();
  if (!buffers) return tensors;
  const Tensors more = module.buffers();
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

// The model's tensors on the devices of the average's.
Tensors Moved(const Tensors& model, const Tensors& averaged) {
  if (model.size() != averaged.size()) {
    ThrowIfError(absl::InvalidArgumentError(
        absl::StrCat("the model has ", model.size(), " parameters or buffers, and its average has ", averaged.size())));
  }
  Tensors moved;
  for (size_t i = 0; i < model.size(); ++i) moved.push_back(model[i].detach().to(averaged[i].device()));
  return moved;
}

void Copy(const Tensors& from, const Tensors& to) {
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
}

// Updates tensor by tensor.
MultiAvgFn OneByOne(AvgFn avg_fn) {
  return [avg_fn = std::move(avg_fn)](const Tensors& averaged, const Tensors& model, const at::Tensor& n_averaged) {
    for (size_t i = 0; i < averaged.size(); ++i) averaged[i].copy_(avg_fn(averaged[i], model[i], n_averaged));
  };
}

}  // namespace

AvgFn GetEmaAvgFn(double decay) {
  CheckDecay(decay);
  return [decay](const at::Tensor& averaged, const at::Tensor& model, const at::Tensor&) {
    return averaged * decay + model * (1 - decay);
  };
}

MultiAvgFn GetEmaMultiAvgFn(double decay) {
  CheckDecay(decay);
  return [decay](const Tensors& averaged, const Tensors& model, const at::Tensor& n_averaged) {
    if (HasFractions(averaged[0])) return at::_foreach_lerp_(averaged, model, 1 - decay);
    OneByOne(GetEmaAvgFn(decay))(averaged, model, n_averaged);
  };
}

AvgFn GetSwaAvgFn() {
  return [](const at::Tensor& averaged, const at::Tensor& model, const at::Tensor& n_averaged) {
    return averaged + (model - averaged) / (n_averaged + 1);
  };
}

MultiAvgFn GetSwaMultiAvgFn() {
  return [](const Tensors& averaged, const Tensors& model, const at::Tensor& n_averaged) {
    if (HasFractions(averaged[0])) return at::_foreach_lerp_(averaged, model, (n_averaged + 1).reciprocal().item());
    OneByOne(GetSwaAvgFn())(averaged, model, n_averaged);
  };
}

absl::StatusOr<std::shared_ptr<AveragedModel>> AveragedModel::Create(const torch::nn::Module& model,
                                                                     AveragedModelOptions options) {
  if (options.avg_fn && options.multi_avg_fn)
    return absl::InvalidArgumentError("AveragedModel: expected avg_fn or multi_avg_fn, not both");
  return TorchStatusOr("AveragedModel", [&] {
    return std::make_shared<AveragedModel>(model.clone(options.device), std::move(options));
  });
}

AveragedModel::AveragedModel(std::shared_ptr<torch::nn::Module> module, AveragedModelOptions options)
    : options_(std::move(options)), module_(register_module("module", std::move(module))) {
  const at::TensorOptions of = at::TensorOptions().dtype(at::kLong).device(options_.device.value_or(at::kCPU));
  n_averaged = register_buffer("n_averaged", at::zeros({}, of));
}

void AveragedModel::UpdateParameters(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  const Tensors averaged = TensorsOf(*module_, options_.use_buffers);
  const Tensors now = Moved(TensorsOf(model, options_.use_buffers), averaged);
  n_averaged.item<int64_t>() == 0 ? Copy(now, averaged) : Average(averaged, now);
  if (!options_.use_buffers) Copy(Moved(model.buffers(), module_->buffers()), module_->buffers());
  n_averaged += 1;
}

void AveragedModel::Average(const Tensors& averaged, const Tensors& model) {
  std::map<std::pair<std::string, at::ScalarType>, std::pair<Tensors, Tensors>> groups;
  for (size_t i = 0; i < averaged.size(); ++i) {
    auto& group = groups[{averaged[i].device().str(), averaged[i].scalar_type()}];
    group.first.push_back(averaged[i].detach());
    group.second.push_back(model[i]);
  }
  for (const auto& [key, group] : groups) {
    const at::Device device = group.first[0].device();
    const MultiAvgFn update = options_.multi_avg_fn ? options_.multi_avg_fn
                              : options_.avg_fn     ? OneByOne(options_.avg_fn)
                              : device.is_cuda()    ? GetSwaMultiAvgFn()
                                                    : OneByOne(GetSwaAvgFn());
    update(group.first, group.second, n_averaged.to(device));
  }
}

void internal::UpdateNormLayers(torch::nn::Module& model, const std::vector<NormLayer>& layers,
                                absl::FunctionRef<void()> forward_all) {
  if (layers.empty()) return;
  std::vector<std::optional<double>> momenta;
  for (const NormLayer& layer : layers) momenta.push_back(layer.momentum);
  const bool was_training = model.is_training();
  const absl::Cleanup restore = [&] {
    for (size_t i = 0; i < layers.size(); ++i) layers[i].momentum = momenta[i];
    model.train(was_training);
  };
  const at::NoGradGuard no_grad;
  model.train();
  for (const NormLayer& layer : layers) {
    layer.reset_running_stats();
    layer.momentum = std::nullopt;
  }
  forward_all();
}

}  // namespace lockstep::optim
