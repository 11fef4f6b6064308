// An optimizer whose state is divided among the ranks.

#ifndef LOCKSTEP_DDP_ZERO_ZERO_REDUNDANCY_OPTIMIZER_H_
#define LOCKSTEP_DDP_ZERO_ZERO_REDUNDANCY_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/zero/internal/shards.h"

namespace torch::optim {
class LBFGS;
}

namespace lockstep::ddp::zero {

struct ZeroOptions {
  // Moves the parameters' data into one buffer for each rank and dtype, so that steps neither copy nor need memory for
  // the broadcasts. Other tensors that shared memory with a parameter, such as a view of it, no longer do.
  bool parameters_as_bucket_view = false;
};

// A `Base` that keeps the optimizer state only for this rank's share of the parameters. Base is torch::optim::SGD,
// Adam, AdamW, RMSprop, Adagrad, or another optimizer that treats each parameter separately (not LBFGS). step() steps
// this share, and then the ranks broadcast their results. After every step the parameters have the bits that a plain
// `Base` gives for the same gradients. With n ranks Adam's state takes 1/n of the memory. This is stage 1 of S.
// Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
// 2020, https://arxiv.org/abs/1910.02054. Parameters are divided as by torch.distributed's class of this name.
//
//   using Adam = ddp::zero::ZeroRedundancyOptimizer<torch::optim::Adam>;
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Adam> optimizer,
//                             Adam::Create(ddp.parameters(), torch::optim::AdamOptions(1e-3), group.get()));
//   torch::optim::StepLR scheduler(*optimizer, 30, 0.1);
//   ...
//   optimizer->zero_grad(); loss.backward(); optimizer->step();
//
// The gradients must be the same on every rank, as after DistributedDataParallel's backward. So must the options of the
// param groups. They may change between steps, also by schedulers: each step uses the current values. param_groups()
// and zero_grad() cover all parameters, and state() covers this rank's share.
//
// Create(), AddParamGroup(), step() and ConsolidateStateDict() are collective: every rank must call them in the same
// order.
//
// To save, call ConsolidateStateDict(0). Then, before the next step, save this optimizer on rank 0 like a plain `Base`,
// with checkpoint::OptimizerStateDict() or torch::save(). To load, load the whole state like that of a plain `Base`, on
// every rank, with any number of ranks. The next step (or KeepOwnShare()) drops the other ranks' shares. torch::load()
// needs the parameters' device as its last argument.
//
// The group must outlive it. Not thread-safe.
template <typename Base>
class ZeroRedundancyOptimizer final : public Base {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Base>, "Base is a LibTorch optimizer");
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Base>, "LBFGS steps all parameters as one vector");

 public:
  // Creates an optimizer for param groups. A group without options gets `defaults`, Base's options. The groups must be
  // the same on every rank, in the same order. Communicates only to compare the parameters through the group's store.
  // InvalidArgument, on all ranks: the parameters differ in number, shape, dtype, strides or requires_grad (the error
  // names the first difference), or one is undefined, not a leaf, or occurs twice. Internal: Base rejects the options.
  template <typename Options>
  static absl::StatusOr<std::unique_ptr<ZeroRedundancyOptimizer>> Create(
      std::vector<torch::optim::OptimizerParamGroup> groups, const Options& defaults, comm::ProcessGroup* group,
      const ZeroOptions& options = {}) {
    LOCKSTEP_ASSIGN_OR_RETURN(internal::Shards shards,
                              internal::Shards::Create(groups, group, options.parameters_as_bucket_view));
    return TorchStatusOr(absl::StrCat("rank ", group->rank(), ": ZeroRedundancyOptimizer"), [&] {
      return std::unique_ptr<ZeroRedundancyOptimizer>(
          new ZeroRedundancyOptimizer(std::move(groups), defaults, std::move(shards)));
    });
  }

  template <typename Options>
  static absl::StatusOr<std::unique_ptr<ZeroRedundancyOptimizer>> Create(std::vector<at::Tensor> parameters,
                                                                         const Options& defaults,
                                                                         comm::ProcessGroup* group,
                                                                         const ZeroOptions& options = {}) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::move(parameters));
    return Create(std::move(groups), defaults, group, options);
  }

  // Adds parameters. If the group has no options, it gets those given to Create(). Existing parameters keep their rank.
  // Errors are the same as from Create(), and change nothing. torch::optim::Adagrad creates state only in its
  // constructor, so it cannot step added parameters.
  absl::Status AddParamGroup(torch::optim::OptimizerParamGroup added) {
    if (!added.has_options()) added.set_options(this->defaults_->clone());
    internal::ParamGroups groups = this->param_groups_;
    groups.push_back(std::move(added));
    LOCKSTEP_ASSIGN_OR_RETURN(shards_, internal::Shards::Create(groups, &shards_.group(), shards_.as_views()));
    this->param_groups_ = std::move(groups);
    return absl::OkStatus();
  }

  // Returns the result of `closure`, if there is one. Throws the exceptions of Base, and StatusError: errors of the
  // broadcasts, and FailedPrecondition if parameters were added without AddParamGroup().
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const c10::AutoGradMode enable_grad(true);
      loss = closure();
    }
    KeepOwnShare();
    WithGroups(shards_.OwnShare(this->param_groups_), [this] { Base::step(); });
    ThrowIfError(Annotate(shards_.Broadcast(), "ZeroRedundancyOptimizer::step"));
    return loss;
  }

  // Gives rank `to` the states of all parameters until its next step. States of other ranks' parameters are in its CPU
  // memory. The ranks send their shares one after another. InvalidArgument: `to` is not a rank. Other errors come
  // from sends and receives.
  absl::Status ConsolidateStateDict(int to = 0) {
    comm::ProcessGroup& group = shards_.group();
    const std::string who = absl::StrCat("rank ", group.rank(), ": ConsolidateStateDict");
    if (to < 0 || to >= group.size()) {
      return absl::InvalidArgumentError(absl::StrCat(who, ": to is ", to, ", expected a rank below ", group.size()));
    }
    KeepOwnShare();
    for (int from = 0; from < group.size(); ++from) {
      absl::Status moved;
      const absl::Status thrown = TorchStatus(who, [&] { moved = MoveStates(from, to); });
      LOCKSTEP_RETURN_IF_ERROR(thrown);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(moved, who));
    }
    return absl::OkStatus();
  }

  // Frees the states of other ranks' parameters. Each step does this first.
  void KeepOwnShare() { shards_.DropOthers(this->state_); }

 private:
  // Base is constructed with this rank's share, since some optimizers create state in the constructor. It fills in the
  // groups' options.
  template <typename Options>
  ZeroRedundancyOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups, const Options& defaults,
                          internal::Shards shards)
      : Base(shards.OwnShare(groups), defaults), shards_(std::move(shards)) {
    for (size_t i = 0; i < groups.size(); ++i) groups[i].set_options(this->param_groups_[i].options().clone());
    this->param_groups_ = std::move(groups);
  }

  // Calls f() while Base's groups are `groups`.
  template <typename F>
  void WithGroups(internal::ParamGroups groups, const F& f) {
    this->param_groups_.swap(groups);
    const auto restore = absl::MakeCleanup([&] { this->param_groups_.swap(groups); });
    f();
  }

  absl::Status MoveStates(int from, int to) {
    const int rank = shards_.group().rank();
    if (from == to || (rank != from && rank != to)) return absl::OkStatus();
    internal::ParamGroups share = shards_.ShareOf(this->param_groups_, from);
    if (rank == from) {
      std::string bytes;
      WithGroups(std::move(share), [&] { bytes = internal::ToBytes([this](auto& archive) { Base::save(archive); }); });
      return shards_.SendBytes(bytes, to);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, shards_.ReceiveBytes(from));
    WithGroups(std::move(share), [&] { internal::FromBytes(bytes, [this](auto& archive) { Base::load(archive); }); });
    return absl::OkStatus();
  }

  internal::Shards shards_;
};

}  // namespace lockstep::ddp::zero

#endif  // LOCKSTEP_DDP_ZERO_ZERO_REDUNDANCY_OPTIMIZER_H_
