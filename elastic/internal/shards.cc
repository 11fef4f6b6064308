#include "lockstep/elastic/internal/shards.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/elastic/internal/healing.h"
#include "lockstep/elastic/internal/kept_state.h"

namespace lockstep::elastic::internal {

using checkpoint::Value;

namespace {

// Calls f(number, parameter) for each parameter of the optimizer.
template <typename F>
void ForEachParameter(const torch::optim::Optimizer& optimizer, const F& f) {
  int64_t number = 0;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) f(number++, parameter);
  }
}

int64_t NumberOfElements(const std::vector<at::Tensor>& tensors) {
  int64_t number = 0;
  for (const at::Tensor& tensor : tensors) number += tensor.numel();
  return number;
}

// The number of elements that [a, a + n) and [b, b + m) have in common.
int64_t Overlap(int64_t a, int64_t n, int64_t b, int64_t m) {
  return std::max<int64_t>(0, std::min(a + n, b + m) - std::max(a, b));
}

// Gives every rank each rank's tensors, which have one dtype and device. `tensors[rank]` are the rank's. An all-gather
// needs equal parts: where a rank has more than two equal ones, as with a large parameter, all elements in the order of
// the ranks are first cut evenly.
absl::Status ShareTensors(comm::ProcessGroup& group, const std::vector<std::vector<at::Tensor>>& tensors) {
  std::vector<int64_t> numbers, begins(1, 0);  // of each rank's elements among all
  at::TensorOptions options;
  for (const std::vector<at::Tensor>& of_rank : tensors) {
    numbers.push_back(NumberOfElements(of_rank));
    begins.push_back(begins.back() + numbers.back());
    if (!of_rank.empty()) options = of_rank[0].options().requires_grad(false);
  }
  const int rank = group.rank();
  const int64_t most = *absl::c_max_element(numbers), equal = (begins.back() + group.size() - 1) / group.size();
  const bool cuts = most > 2 * equal;
  const int64_t part = cuts ? equal : most;
  const at::Tensor own = at::empty({part}, options), all = at::empty({group.size() * part}, options);
  const at::Tensor flat = tensors[rank].empty() ? at::empty({0}, options) : comm::internal::Flatten(tensors[rank]);
  if (cuts) {
    std::vector<int64_t> sent, received;
    for (int other = 0; other < group.size(); ++other) {
      sent.push_back(Overlap(begins[rank], numbers[rank], other * part, part));
      received.push_back(Overlap(begins[other], numbers[other], rank * part, part));
    }
    const int64_t number = std::accumulate(received.begin(), received.end(), int64_t{0});
    LOCKSTEP_RETURN_IF_ERROR(group.AllToAllSingle(own.narrow(0, 0, number), flat, received, sent));
  } else {
    own.narrow(0, 0, numbers[rank]).copy_(flat);
  }
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, own));
  // If a rank has died, `all` is undefined on a GPU, and this rank may be the only one that has a parameter now.
  LOCKSTEP_RETURN_IF_ERROR(group.Synchronize(options.device()));
  for (int other = 0; other < group.size(); ++other) {
    if (other == rank) continue;
    comm::internal::Unflatten(all.narrow(0, cuts ? begins[other] : other * part, numbers[other]), tensors[other]);
  }
  return absl::OkStatus();
}

}  // namespace

void Shards::Add(const std::string& name, torch::optim::Optimizer* optimizer, Shard* shard) {
  things_.push_back({name, optimizer, shard});
}

void Shards::AddModel(const std::string& name, KeptModel* model) {
  for (fsdp::internal::KeptShard& shard : model->shards()->shards)
    pieces_[shard.tensor.unsafeGetTensorImpl()] = {models_.size(), &shard};
  models_.push_back({name, model});
}

absl::Status Shards::CheckModels() const {
  std::map<const fsdp::internal::KeptShard*, int> optimizers;
  for (const Parameter& parameter : Parameters()) ++optimizers[parameter.piece];
  for (const auto& [tensor, piece] : pieces_) {
    const int found = optimizers[piece.second];
    if (found == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "World::Run: elements ", piece.second->begin, " to ", piece.second->end, " of ", piece.second->parameter,
        " of \"", models_[piece.first].name, "\" are in ", found, " sharded optimizers that are kept, expected 1"));
  }
  return absl::OkStatus();
}

absl::Status Shards::PrepareModels() const {
  for (const Model& each : models_) {
    const auto& prepare = each.model->shards()->prepare_step;
    if (!prepare) {
      return absl::FailedPreconditionError(
          absl::StrCat("World::Commit: \"", each.name, "\" is not wrapped: call its Wrap() in `train`"));
    }
    LOCKSTEP_RETURN_IF_ERROR(prepare());
  }
  return absl::OkStatus();
}

std::vector<Shards::Parameter> Shards::Parameters() const {
  std::vector<Parameter> parameters;
  for (size_t thing = 0; thing < things_.size(); ++thing) {
    ForEachParameter(*things_[thing].optimizer, [&](int64_t number, const at::Tensor& tensor) {
      const auto piece = pieces_.find(tensor.unsafeGetTensorImpl());
      parameters.push_back({thing, number, tensor, piece == pieces_.end() ? nullptr : piece->second.second});
    });
  }
  return parameters;
}

void Shards::SetAll(bool keeps) {
  for (const Thing& thing : things_) {
    std::vector<bool> of_all;
    ForEachParameter(*thing.optimizer, [&](int64_t, const at::Tensor&) { of_all.push_back(keeps); });
    thing.shard->keeps = std::move(of_all);
  }
}

bool Shards::Keeps(const Parameter& parameter) const { return things_[parameter.thing].shard->keeps[parameter.number]; }

void Shards::SetKeeps(const Parameter& parameter, bool keeps) {
  things_[parameter.thing].shard->keeps[parameter.number] = keeps;
}

std::string Shards::NameOf(const Parameter& parameter) const {
  if (parameter.piece) {
    const std::string& model = models_[pieces_.at(parameter.tensor.unsafeGetTensorImpl()).first].name;
    return absl::StrCat(model, ": elements ", parameter.piece->begin, " to ", parameter.piece->end, " of ",
                        parameter.piece->parameter);
  }
  return absl::StrCat(things_[parameter.thing].name, ": parameter ", parameter.number, " of shape [",
                      absl::StrJoin(parameter.tensor.sizes(), ", "), "]");
}

// The ranks for which `mine` is true, for each parameter.
absl::StatusOr<std::vector<std::vector<int>>> Shards::WhoHas(comm::ProcessGroup& group,
                                                             const std::vector<bool>& mine) const {
  const auto number = static_cast<int64_t>(mine.size());
  std::vector<std::vector<int>> ranks(mine.size());
  if (mine.empty()) return ranks;
  const at::Tensor own = at::empty({number}, at::kByte), all = at::empty({group.size(), number}, at::kByte);
  std::copy(mine.begin(), mine.end(), own.mutable_data_ptr<uint8_t>());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, own));
  const auto* has = static_cast<const uint8_t*>(all.const_data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    for (std::vector<int>& of_parameter : ranks) {
      if (*has++) of_parameter.push_back(rank);
    }
  }
  return ranks;
}

absl::Status Shards::CheckNoneLost(const std::vector<Parameter>& parameters,
                                   const std::vector<std::vector<int>>& have) const {
  for (size_t p = 0; p < have.size(); ++p) {
    if (!have[p].empty()) continue;
    const char* const what = parameters[p].piece ? "a part of the model" : "the optimizer's state";
    return absl::DataLossError(absl::StrCat("World: ", what,
                                            " is lost, since both ranks that had a part of it have left: of ",
                                            NameOf(parameters[p]), "; load the last checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<int>>> Shards::WhoHasStates(comm::ProcessGroup& group) const {
  const std::vector<Parameter> parameters = Parameters();
  std::vector<bool> mine;
  for (const Parameter& parameter : parameters) mine.push_back(Keeps(parameter));
  return WhoHas(group, mine);
}

absl::Status Shards::Divide(comm::ProcessGroup& group, const std::vector<int>& nodes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto have, WhoHasStates(group));
  const std::vector<Parameter> parameters = Parameters();
  lost_ = CheckNoneLost(parameters, have);
  if (!lost_.ok()) return absl::OkStatus();
  std::vector<int64_t> sizes;
  for (const Parameter& parameter : parameters) sizes.push_back(parameter.numel());
  keepers_ = PlanShards(sizes, have, nodes);
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<size_t>> moves;
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<int> receivers;
    for (const int rank : {keepers_[p].owner, keepers_[p].second}) {
      if (!absl::c_linear_search(have[p], rank)) receivers.push_back(rank);
    }
    absl::c_sort(receivers);
    if (!receivers.empty()) moves[{have[p], receivers}].push_back(p);
  }
  std::vector<Move> all;
  for (const auto& [ranks, of_move] : moves) all.push_back({ranks.first, ranks.second, of_move});
  LOCKSTEP_RETURN_IF_ERROR(Transfer(group, all, /*with_states=*/true));
  // From here on this rank has what it has received, also if the barrier fails: others may have passed it.
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (keepers_[p].Has(group.rank())) SetKeeps(parameters[p], true);
  }
  // Nobody drops a state that another rank still needs.
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const bool keeps = keepers_[p].Has(group.rank());
    SetKeeps(parameters[p], keeps);
    if (!parameters[p].piece) continue;
    parameters[p].piece->owner = keepers_[p].owner;
    parameters[p].piece->second = keepers_[p].second;
    // At the start pieces are views of the parameters.
    const at::Tensor& tensor = parameters[p].tensor;
    const bool is_view = tensor.storage().nbytes() > tensor.nbytes() || tensor.storage().use_count() > 1;
    if (keeps && is_view) at::Tensor(tensor).set_data(tensor.detach().clone());
  }
  DropOthers();
  return absl::OkStatus();
}

absl::Status Shards::Gather(comm::ProcessGroup& group, int to, bool with_states) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto have, WhoHasStates(group));
  const std::vector<Parameter> parameters = Parameters();
  std::map<std::vector<int>, std::vector<size_t>> moves;
  for (size_t p = 0; p < have.size(); ++p) {
    const bool is_sent = with_states || parameters[p].piece;
    if (is_sent && !absl::c_linear_search(have[p], to)) moves[have[p]].push_back(p);
  }
  std::vector<Move> all;
  for (const auto& [sources, of_move] : moves) all.push_back({sources, {to}, of_move});
  LOCKSTEP_RETURN_IF_ERROR(Transfer(group, all, with_states));
  return TorchStatus("World::GatherShards", [&] {
    for (const Model& each : models_) each.model->Assemble(/*has_all=*/group.rank() == to);
  });
}

// Each move is a healing of a few values: the states of its parameters.
absl::Status Shards::Transfer(comm::ProcessGroup& group, const std::vector<Move>& moves, bool with_states) const {
  const std::vector<Parameter> parameters = Parameters();
  std::vector<Value> states, received;
  for (const Thing& thing : things_) {
    const absl::StatusOr<Value> dict = checkpoint::OptimizerStateDict(*thing.optimizer);
    if (!dict.ok()) return Annotate(dict.status(), thing.name);
    states.push_back(*dict->Find("state"));
    received.push_back(Value::Dict());
  }
  for (const Move& move : moves) {
    KeptState kept;
    for (const size_t p : move.parameters) {
      const Parameter& parameter = parameters[p];
      KeptThing state;
      state.save = [&]() -> absl::StatusOr<Value> {
        const Value* found = states[parameter.thing].Find(parameter.number);
        const Value of_optimizer = found && with_states ? *found : Value::Dict();  // none before the first step
        if (!parameter.piece) return of_optimizer;
        return Value::Dict({{"value", parameter.tensor.detach()}, {"state", of_optimizer}});
      };
      state.load = [&](const Value& value) {
        if (with_states)
          received[parameter.thing].Set(parameter.number, parameter.piece ? *value.Find("state") : value);
        if (parameter.piece) at::Tensor(parameter.tensor).set_data(value.Find("value")->tensor());
        return absl::OkStatus();
      };
      LOCKSTEP_RETURN_IF_ERROR(kept.Add(NameOf(parameter), std::move(state)));
    }
    LOCKSTEP_RETURN_IF_ERROR(Heal(group, {move.sources, move.receivers}, /*in_place=*/false, &kept));
  }
  for (size_t t = 0; t < things_.size(); ++t) {
    if (received[t].entries().empty()) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(Value dict, checkpoint::OptimizerStateDict(*things_[t].optimizer));
    Value all = *dict.Find("state");
    for (const auto& [number, state] : received[t].entries()) {
      if (!state.entries().empty()) all.Set(number, state);
    }
    dict.Set("state", all);
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(checkpoint::LoadOptimizerStateDict(*things_[t].optimizer, dict, /*copy=*/false), things_[t].name));
  }
  return absl::OkStatus();
}

void Shards::DropOthers() const {
  for (const Parameter& parameter : Parameters()) {
    if (Keeps(parameter)) continue;
    things_[parameter.thing].optimizer->state().erase(parameter.tensor.unsafeGetTensorImpl());
    if (!parameter.piece || parameter.tensor.numel() == 0) continue;
    parameter.tensor.mutable_grad().reset();
    at::Tensor(parameter.tensor).set_data(at::empty({0}, parameter.tensor.options().requires_grad(false)));
  }
}

absl::Status Shards::ShareParameters(comm::ProcessGroup& group) const {
  const c10::NoGradGuard no_grad;
  const std::vector<Parameter> parameters = Parameters();
  // In the parameters' order, since the devices of ranks have different numbers.
  using Kind = std::pair<c10::Device, at::ScalarType>;
  std::vector<std::pair<Kind, std::vector<std::vector<at::Tensor>>>> kinds;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].piece) continue;
    const at::Tensor& tensor = parameters[p].tensor;
    const Kind kind = {tensor.device(), tensor.scalar_type()};
    auto found = absl::c_find_if(kinds, [&kind](const auto& each) { return each.first == kind; });
    if (found == kinds.end()) {
      found = kinds.insert(found, {kind, std::vector<std::vector<at::Tensor>>(group.size())});
    }
    found->second[keepers_[p].owner].push_back(tensor);
  }
  for (const auto& [kind, tensors] : kinds) LOCKSTEP_RETURN_IF_ERROR(ShareTensors(group, tensors));
  for (const Model& each : models_) LOCKSTEP_RETURN_IF_ERROR(each.model->shards()->publish());
  return absl::OkStatus();
}

absl::Status Shards::SpreadParameters(comm::ProcessGroup& group, bool has_all, bool has_none) {
  const std::vector<Parameter> parameters = Parameters();
  std::vector<bool> mine;
  for (const Parameter& parameter : parameters)
    mine.push_back((has_all && !parameter.piece) || (!has_none && Keeps(parameter)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto have, WhoHas(group, mine));
  lost_ = CheckNoneLost(parameters, have);
  if (!lost_.ok()) return lost_;
  std::vector<std::vector<at::Tensor>> from(group.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].piece) continue;
    const int source = have[p][0];
    // If a rank dies, what arrives is undefined on a GPU.
    const bool overwrites = mine[p] && source != group.rank();
    from[source].push_back(overwrites ? at::empty_like(parameters[p].tensor) : parameters[p].tensor);
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(comm::internal::BroadcastCoalesced(group, from[rank], rank));
  }
  for (const Parameter& parameter : parameters) {
    LOCKSTEP_RETURN_IF_ERROR(group.Synchronize(parameter.tensor.device()));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::elastic::internal
