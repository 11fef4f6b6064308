// The states of sharded optimizers, and the pieces of sharded models. Each of them is on two ranks.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_SHARDS_H_
#define LOCKSTEP_ELASTIC_INTERNAL_SHARDS_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/kept_model.h"
#include "lockstep/elastic/internal/shard.h"
#include "lockstep/elastic/internal/shard_plan.h"
#include "lockstep/fsdp/internal/kept_shards.h"

namespace lockstep::elastic::internal {

// A rank knows which parameters' states it has itself, and not which states the others have. So a function that needs
// to know this of all ranks begins with an all-gather of one byte for each parameter. Functions with a group are
// collective.
class Shards {
 public:
  // Both must outlive the object.
  void Add(const std::string& name, torch::optim::Optimizer* optimizer, Shard* shard);
  bool empty() const { return things_.empty(); }

  // `name`, "net", is for errors. The optimizers have the model's shards among their parameters. A shard's value goes
  // where its optimizer's state goes. The model must outlive the object.
  void AddModel(const std::string& name, KeptModel* model);
  bool has_models() const { return !models_.empty(); }
  // InvalidArgument: a shard of a model is in no optimizer, or in two.
  absl::Status CheckModels() const;
  // The models wait for their gradients. FailedPrecondition: a model is not wrapped. The group's errors.
  absl::Status PrepareModels() const;

  // This rank has the state of all parameters, or of none.
  void HaveAll() { SetAll(true); }
  void HaveNone() { SetAll(false); }

  // Gives two ranks each parameter's state, sent from the memory of the ranks that have it. Then each rank drops the
  // states that it need not keep. nodes[r] is the node of rank r. Does nothing if no rank has the state of a parameter.
  absl::Status Divide(comm::ProcessGroup& group, const std::vector<int>& nodes);
  // DataLoss, on all ranks, if no rank has the state or the new value of a parameter: there can be no other step. After
  // Divide() the parameters are complete.
  const absl::Status& lost() const { return lost_; }

  // After a step that all ranks have made: gives every rank the parameters of each owner, in one all-gather of each
  // dtype. Models publish their shards.
  absl::Status ShareParameters(comm::ProcessGroup& group) const;

  // Completes a step that was interrupted when ranks had stepped their own shards only: gives every rank the new value
  // of all parameters. `has_all`: this rank has all of them already. `has_none`: this rank has not begun the step. A
  // model's shards stay where they are.
  // Returns lost(), and the group's errors.
  absl::Status SpreadParameters(comm::ProcessGroup& group, bool has_all, bool has_none);

  // Gives rank `to` the parameters of the models' modules and, `with_states`, all states, until DropOthers(). Not if
  // lost().
  absl::Status Gather(comm::ProcessGroup& group, int to, bool with_states) const;
  void DropOthers() const;

 private:
  struct Thing {
    std::string name;
    torch::optim::Optimizer* optimizer = nullptr;
    Shard* shard = nullptr;
  };
  struct Parameter {
    size_t thing = 0;
    int64_t number = 0;  // among the parameters of the thing
    at::Tensor tensor;
    fsdp::internal::KeptShard* piece = nullptr;  // of a model
    int64_t numel() const { return piece ? piece->end - piece->begin : tensor.numel(); }
  };
  struct Model {
    std::string name;
    KeptModel* model = nullptr;
  };
  // Parameters whose states go from the same ranks to the same ranks.
  struct Move {
    std::vector<int> sources, receivers;
    std::vector<size_t> parameters;
  };

  std::vector<Parameter> Parameters() const;
  void SetAll(bool keeps);
  bool Keeps(const Parameter& parameter) const;
  void SetKeeps(const Parameter& parameter, bool keeps);
  std::string NameOf(const Parameter& parameter) const;
  absl::Status CheckNoneLost(const std::vector<Parameter>& parameters, const std::vector<std::vector<int>>& have) const;
  absl::StatusOr<std::vector<std::vector<int>>> WhoHas(comm::ProcessGroup& group, const std::vector<bool>& mine) const;
  absl::StatusOr<std::vector<std::vector<int>>> WhoHasStates(comm::ProcessGroup& group) const;
  absl::Status Transfer(comm::ProcessGroup& group, const std::vector<Move>& moves, bool with_states) const;

  std::vector<Thing> things_;
  std::vector<Model> models_;
  std::map<const at::TensorImpl*, std::pair<size_t, fsdp::internal::KeptShard*>> pieces_;  // with the model's number
  std::vector<Keepers> keepers_;  // of each parameter, since Divide()
  absl::Status lost_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_SHARDS_H_
