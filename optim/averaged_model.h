// An average of a model's weights over the steps of its training, as torch.optim.swa_utils has it: an exponential moving
// average (EMA), or the equal average of stochastic weight averaging (SWA). The average often generalises better than
// the last weights.
//
//   AveragedModelOptions options;
//   options.multi_avg_fn = GetEmaMultiAvgFn(0.999);
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<AveragedModel> ema, AveragedModel::Create(*net, options));
//   ... sgd.step(); ema->UpdateParameters(*net);              // after each step
//   ema->module<NetImpl>()->forward(images);                  // validates the average
//   checkpoint::StateDict(*ema);                              // Python's state: n_averaged, module.conv1.weight, ...
//
// After training, UpdateBatchNorm() computes the statistics that BatchNorm needs with averaged weights. The rate for SWA
// is the schedule checkpoint::SWALR.
//
// P. Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018,
// https://arxiv.org/abs/1803.05407. B. T. Polyak, A. B. Juditsky, "Acceleration of Stochastic Approximation by
// Averaging", SIAM Journal on Control and Optimization 30(4), 1992.

#ifndef LOCKSTEP_OPTIM_AVERAGED_MODEL_H_
#define LOCKSTEP_OPTIM_AVERAGED_MODEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace lockstep::optim {

// Returns the new average from the average so far, the model's tensor, and the number of updates so far, an integer
// tensor without dimensions.
using AvgFn =
    std::function<at::Tensor(const at::Tensor& averaged, const at::Tensor& model, const at::Tensor& n_averaged)>;
// Updates averages in place. The tensors have one dtype and one device.
using MultiAvgFn = std::function<void(const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& model,
                                      const at::Tensor& n_averaged)>;

// The moving average decay * averaged + (1 - decay) * model, and the equal average of all updates. The functions for
// many tensors take one pass over memory, and round otherwise than those for one tensor, as in Python. `decay` is from
// 0 to 1; otherwise they throw StatusError, InvalidArgument.
AvgFn GetEmaAvgFn(double decay = 0.999);
MultiAvgFn GetEmaMultiAvgFn(double decay = 0.999);
AvgFn GetSwaAvgFn();
MultiAvgFn GetSwaMultiAvgFn();

struct AveragedModelOptions {
  // At most one of the two. Without both: GetSwaMultiAvgFn() for tensors on a GPU, and GetSwaAvgFn() for others.
  AvgFn avg_fn = {};
  MultiAvgFn multi_avg_fn = {};
  // True if buffers are averaged too. Otherwise they are copied in each update.
  bool use_buffers = false;
  // The average's device; without, that of the model.
  std::optional<c10::Device> device = {};
};

// Holds a clone of a model, whose parameters are the average, as the submodule "module". Not thread-safe. Each rank has
// its own: if the ranks' weights are equal, so are their averages.
class AveragedModel : public torch::nn::Module {
 public:
  // Clones `model` with Module::clone(), which draws the initial weights of a model again before it copies the weights.
  // Tied weights are separate in the clone. InvalidArgument: both functions are given. Unimplemented or Internal: the
  // model has no clone(), or LibTorch fails.
  static absl::StatusOr<std::shared_ptr<AveragedModel>> Create(const torch::nn::Module& model,
                                                               AveragedModelOptions options = {});

  // Takes the weights of `model` into the average. The first update copies them, and also the buffers if use_buffers.
  // `model` is of the same kind as the one of Create(); its device may be another. Throws LibTorch's exceptions, and
  // StatusError, InvalidArgument, if it has another number of parameters or buffers.
  void UpdateParameters(const torch::nn::Module& model);

  // The averaged model as a Model, the type of `model` in Create(); nullptr if it has another type.
  template <typename Model = torch::nn::Module>
  std::shared_ptr<Model> module() const {
    return std::dynamic_pointer_cast<Model>(module_);
  }

  // The number of updates: an int64 buffer without dimensions.
  at::Tensor n_averaged;

  // For Create().
  AveragedModel(std::shared_ptr<torch::nn::Module> module, AveragedModelOptions options);

 private:
  void Average(const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& model);

  const AveragedModelOptions options_;
  const std::shared_ptr<torch::nn::Module> module_;
};

namespace internal {

// A BatchNorm layer's momentum, and its reset.
struct NormLayer {
  std::optional<double>& momentum;
  std::function<void()> reset_running_stats;
};

template <typename Layer>
void AddNormLayer(torch::nn::Module& module, std::vector<NormLayer>& layers) {
  auto* const layer = module.as<Layer>();
  if (layer) layers.push_back({layer->options.momentum(), [layer] { layer->reset_running_stats(); }});
}

void UpdateNormLayers(torch::nn::Module& model, const std::vector<NormLayer>& layers,
                      absl::FunctionRef<void()> forward_all);

}  // namespace internal

// Sets the running statistics of all BatchNorm layers of `model` to the equal average over the batches of
// `forward_all`, which runs the model on each batch, in training mode. It is Python's update_bn. Afterwards the layers'
// momentum and the model's mode are as before, also if `forward_all` throws. Without such a layer it is not called.
// MoreLayers are other layers with BatchNorm's members, such as ddp::SyncBatchNormImpl.
//
//   UpdateBatchNorm(*ema, [&] { for (data::Example& batch : batches) ema->module<NetImpl>()->forward(batch.data); });
template <typename... MoreLayers>
void UpdateBatchNorm(torch::nn::Module& model, absl::FunctionRef<void()> forward_all) {
  std::vector<internal::NormLayer> layers;
  model.apply([&](torch::nn::Module& module) {
    internal::AddNormLayer<torch::nn::BatchNorm1dImpl>(module, layers);
    internal::AddNormLayer<torch::nn::BatchNorm2dImpl>(module, layers);
    internal::AddNormLayer<torch::nn::BatchNorm3dImpl>(module, layers);
    (internal::AddNormLayer<MoreLayers>(module, layers), ...);
  });
  internal::UpdateNormLayers(model, layers, forward_all);
}

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_AVERAGED_MODEL_H_
