// An optimizer that steps parameters while backward still computes gradients.

#ifndef LOCKSTEP_DDP_OVERLAPPED_OPTIMIZER_H_
#define LOCKSTEP_DDP_OVERLAPPED_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace torch::optim {
class LBFGS;
}

namespace lockstep::ddp {

struct OverlappedOptions {
  // True: a gradient becomes undefined as soon as its parameter is stepped, and the rest of backward can reuse its
  // memory. False: gradients stay, and the program must zero them before the next backward.
  bool set_to_none = true;
};

// Steps each parameter inside backward, as soon as the gradients of its bucket are averaged, so the program calls no
// step(). `Base` is a LibTorch optimizer that treats each parameter separately: SGD, Adam, AdamW, RMSprop or Adagrad.
// After every averaged backward the parameters equal, bit for bit, those after a separate Base::step(). Under NoSync
// nothing is averaged, so nothing is stepped.
//
//   using Sgd = ddp::OverlappedOptimizer<torch::optim::SGD>;
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Sgd> optimizer, Sgd::Create(ddp, torch::optim::SGDOptions(0.1)));
//   for (const Batch& batch : batches) {
//     loss(ddp(batch)).backward();   // steps
//     optimizer->set_lr(0.1 * Decay(++step));
//   }
//
// Every rank must create it with the same options, and change them at the same steps. The wrapped module must outlive
// it. Destroying it ends the stepping. A module can have only one. Parameters that DDP does not reduce
// (Options::parameters_to_ignore) are not stepped.
//
// Each averaged backward is a step. If a step needs several backward passes, or code inspects, clips or unscales
// gradients before they are used, use a plain optimizer after backward instead. A second backward through the same
// graph fails, since LibTorch detects the changed parameters. If backward throws, the parameters of buckets averaged
// before are stepped and the others are not: continue from a checkpoint. Exceptions of Base pass through backward.
//
// For checkpoints, each parameter has a separate Base, with that parameter's state.
template <typename Base>
class OverlappedOptimizer {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Base>, "Base is a LibTorch optimizer");
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Base>, "LBFGS steps all parameters as one vector");

 public:
  // A parameter and its optimizer.
  struct Stepped {
    std::string name;  // in the module
    at::Tensor parameter;
    std::unique_ptr<Base> optimizer;  // for this parameter only: see its param_groups()[0] and state()
  };

  // `defaults`: Base's options for every parameter. Sends nothing. FailedPrecondition: the module already has an
  // overlapped optimizer. Unimplemented: the module computes in another dtype (MixedPrecision::param_dtype), since its
  // parameters then are cast until backward ends. Internal: Base rejects the options.
  template <typename Net, typename Defaults>
  static absl::StatusOr<std::unique_ptr<OverlappedOptimizer>> Create(DistributedDataParallel<Net>& ddp,
                                                                     const Defaults& defaults,
                                                                     const OverlappedOptions& options = {}) {
    internal::Replica& replica = internal::ReplicaOf(ddp);
    const std::string who = absl::StrCat("rank ", replica.group().rank(), ": OverlappedOptimizer");
    if (replica.reducer().has_bucket_callback())
      return absl::FailedPreconditionError(absl::StrCat(who, ": the module has an overlapped optimizer already"));
    if (replica.CastsParameters()) {
      return absl::UnimplementedError(absl::StrCat(
          who, ": the module has mixed_precision.param_dtype, so its parameters are cast during backward"));
    }
    return TorchStatusOr(who, [&] {
      return std::unique_ptr<OverlappedOptimizer>(new OverlappedOptimizer(&replica, defaults, options));
    });
  }

  ~OverlappedOptimizer() { replica_->reducer().SetBucketCallback(nullptr); }
  OverlappedOptimizer(const OverlappedOptimizer&) = delete;
  OverlappedOptimizer& operator=(const OverlappedOptimizer&) = delete;

  // In the order of DistributedDataParallel::parameters(), without frozen and ignored parameters. Between steps, use it
  // to change one parameter's options, and to save and load its state.
  const std::vector<Stepped>& parameters() const { return stepped_; }

  // Sets the options of all parameters, from the next step on.
  template <typename BaseOptions>
  void set_options(const BaseOptions& options) {
    for (const Stepped& stepped : stepped_)
      stepped.optimizer->param_groups().front().set_options(std::make_unique<BaseOptions>(options));
  }
  void set_lr(double lr) {
    for (const Stepped& stepped : stepped_) stepped.optimizer->param_groups().front().options().set_lr(lr);
  }

 private:
  template <typename Defaults>
  OverlappedOptimizer(internal::Replica* replica, const Defaults& defaults, const OverlappedOptions& options)
      : replica_(replica), options_(options) {
    for (const internal::NamedTensor& parameter : replica->trained()) {
      stepped_.push_back({parameter.name, parameter.tensor,
                          std::make_unique<Base>(std::vector<at::Tensor>{parameter.tensor}, defaults)});
    }
    replica->reducer().SetBucketCallback([this](const std::vector<int>& indices) { Step(indices); });
  }

  void Step(const std::vector<int>& indices) {
    for (const int i : indices) {
      stepped_[i].optimizer->step();
      if (options_.set_to_none) stepped_[i].parameter.mutable_grad().reset();
    }
  }

  internal::Replica* const replica_;
  const OverlappedOptions options_;
  std::vector<Stepped> stepped_;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_OVERLAPPED_OPTIMIZER_H_
