#include "lockstep/fsdp/internal/whole_optimizer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/comm/agreement.h"

namespace lockstep::fsdp::internal {
namespace {

using checkpoint::Value;

constexpr char kOptions[] = "options", kMembers[] = "members", kGroups[] = "groups", kStates[] = "states";

std::string Shape(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

std::string Shown(const Value* value) {
  if (!value) return "nothing";
  if (value->is_bool()) return value->bool_value() ? "True" : "False";
  if (value->is_int()) return absl::StrCat(value->int_value());
  if (value->is_double()) return absl::StrCat(value->double_value());
  if (value->is_tensor() && value->tensor().numel() == 1) return absl::StrCat(value->tensor().item<double>());
  return std::string(value->type_name());
}

// One rank's message. A tensor without elements stands for one with the parameter's shape.
class Description {
 public:
  Description(const torch::optim::Optimizer& optimizer, const std::vector<ShardedParameter>& parameters)
      : optimizer_(optimizer), parameters_(parameters), own_(parameters.size()) {}

  absl::StatusOr<std::string> Make(Exchange exchange) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto places, PlacesOf(optimizer_, parameters_));
    if (exchange == Exchange::kGroupsAndStates) {
      LOCKSTEP_ASSIGN_OR_RETURN(dict_, checkpoint::OptimizerStateDict(optimizer_));
    }
    Value groups = Value::List(), states = Value::Dict();
    for (size_t g = 0; g < places.size(); ++g) {
      groups.Append(Value::Dict({{kOptions, OptionsOf(g)}, {kMembers, Members(places[g])}}));
      for (size_t i = 0; i < places[g].size() && dict_.is_dict(); ++i) {
        const Value& number = dict_.Find("param_groups")->items()[g].Find("params")->items()[i];
        const Value* state = dict_.Find("state")->Find(number);
        if (!state) continue;
        own_[places[g][i]] = *state;
        LOCKSTEP_ASSIGN_OR_RETURN(const Value described, Describe(parameters_[places[g][i]], *state));
        states.Set(places[g][i], described);
      }
    }
    return checkpoint::Serialize(Value::Dict({{kGroups, groups}, {kStates, states}}));
  }

  std::vector<Value> own() && { return std::move(own_); }

 private:
  static Value Members(const std::vector<size_t>& places) {
    return Value::List(std::vector<Value>(places.begin(), places.end()));
  }

  Value OptionsOf(size_t group) const {
    Value options = Value::Dict();
    if (!dict_.is_dict()) return options;
    for (const auto& [key, value] : dict_.Find("param_groups")->items()[group].entries()) {
      if (key.string_value() != "params") options.Set(key, value);
    }
    return options;
  }

  static absl::StatusOr<Value> Describe(const ShardedParameter& parameter, const Value& state) {
    Value described = Value::Dict();
    for (const auto& [key, value] : state.entries()) {
      const bool tensor = value.is_tensor();
      if (tensor && value.tensor().sizes() == parameter.shard.sizes()) {
        described.Set(key, at::empty({0}, value.tensor().scalar_type()));
      } else if (tensor ? value.tensor().dim() == 0 : value.is_scalar()) {
        described.Set(key, tensor ? Value(value.tensor().cpu()) : value);  // all ranks' devices count as one
      } else {
        return absl::UnimplementedError(absl::StrCat("the state ", key.string_value(), " of ", parameter.name,
                                                     ": expected a number or a tensor ", Shape(parameter.shard),
                                                     ", found ", tensor ? Shape(value.tensor()) : value.type_name()));
      }
    }
    return described;
  }

  const torch::optim::Optimizer& optimizer_;
  const std::vector<ShardedParameter>& parameters_;
  Value dict_;
  std::vector<Value> own_;
};

bool IsTensor(const Value& described) { return described.is_tensor() && described.tensor().numel() == 0; }

bool Same(const Value* a, const Value* b) {
  if (!a || !b) return a == b;
  if (IsTensor(*a) && IsTensor(*b)) return a->tensor().scalar_type() == b->tensor().scalar_type();
  return Identical(*a, *b);
}

// Puts the ranks' messages together. All ranks have the same messages, and so the same errors.
class Merger {
 public:
  Merger(const std::vector<ShardedParameter>& parameters, std::vector<Value> messages)
      : parameters_(parameters), messages_(std::move(messages)), group_of_(parameters.size()) {}

  absl::StatusOr<WholeOptimizer> Run() {
    for (size_t rank = 0; rank < messages_.size(); ++rank) LOCKSTEP_RETURN_IF_ERROR(AddGroups(static_cast<int>(rank)));
    for (WholeOptimizer::Group& group : whole_.groups) std::sort(group.members.begin(), group.members.end());
    for (size_t place = 0; place < parameters_.size(); ++place) LOCKSTEP_RETURN_IF_ERROR(AddState(place));
    return std::move(whole_);
  }

 private:
  struct Seen {
    int rank = -1;  // the first that has the parameter
    size_t group = 0;
    std::vector<int> ranks;
  };

  const std::vector<Value>& Groups(int rank) const { return messages_[rank].Find(kGroups)->items(); }
  const Value* StateOf(int rank, size_t place) const { return messages_[rank].Find(kStates)->Find(place); }

  absl::Status AddGroups(int rank) {
    const std::vector<Value>& groups = Groups(rank);
    if (groups.size() != Groups(0).size()) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s optimizer has ", groups.size(),
                                                     " param_groups, expected ", Groups(0).size(), ", as rank 0's"));
    }
    whole_.groups.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      LOCKSTEP_RETURN_IF_ERROR(AddOptions(rank, g, *groups[g].Find(kOptions)));
      for (const Value& member : groups[g].Find(kMembers)->items()) {
        LOCKSTEP_RETURN_IF_ERROR(AddMember(rank, g, static_cast<size_t>(member.int_value())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddOptions(int rank, size_t g, const Value& options) {
    if (rank == 0) whole_.groups[g].options = options;
    const Value& expected = whole_.groups[g].options;
    for (const auto& [key, value] : options.entries()) {
      if (Same(&value, expected.Find(key))) continue;
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s optimizer has ", Shown(&value),
                                                     " as param_groups[", g, "][\"", key.string_value(),
                                                     "\"], expected ", Shown(expected.Find(key)), ", as rank 0's"));
    }
    return absl::OkStatus();
  }

  absl::Status AddMember(int rank, size_t g, size_t place) {
    Seen& seen = group_of_[place];
    if (seen.rank < 0) {
      seen.rank = rank;
      seen.group = g;
      whole_.groups[g].members.push_back(place);
    }
    seen.ranks.push_back(rank);
    if (seen.group == g) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s optimizer has ", parameters_[place].name,
                                                   " in param_groups[", g, "], expected [", seen.group, "], as rank ",
                                                   seen.rank, "'s"));
  }

  absl::Status AddState(size_t place) {
    const Seen& seen = group_of_[place];
    whole_.states.emplace_back();
    if (seen.rank < 0) return absl::OkStatus();
    const ShardedParameter& parameter = parameters_[place];
    for (const ShardedParameter::Part& part : parameter.parts) {
      if (std::count(seen.ranks.begin(), seen.ranks.end(), part.rank) == 1) continue;
      return absl::InvalidArgumentError(absl::StrCat("rank ", part.rank, "'s optimizer does not have its shard of ",
                                                     parameter.name, ", expected it, as rank ", seen.rank,
                                                     "'s has its own"));
    }
    const Value* expected = StateOf(seen.rank, place);
    for (const int rank : seen.ranks) {
      LOCKSTEP_RETURN_IF_ERROR(CheckState(parameter.name, rank, StateOf(rank, place), seen.rank, expected));
    }
    if (!expected) return absl::OkStatus();
    for (const auto& [key, value] : expected->entries()) {
      WholeOptimizer::Item& item = whole_.states.back().emplace_back();
      item.key = key.string_value();
      if (IsTensor(value)) {
        item.dtype = value.tensor().scalar_type();
      } else {
        item.value = value;
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckState(const std::string& name, int rank, const Value* found, int first,
                                 const Value* expected) {
    const auto differs = [&](absl::string_view what, const Value* of_rank, const Value* of_first) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s optimizer has ", Shown(of_rank), " as ", what,
                                                     " of ", name, ", expected ", Shown(of_first), ", as rank ", first,
                                                     "'s"));
    };
    if (!found || !expected) return found == expected ? absl::OkStatus() : differs("state", found, expected);
    for (const auto& [of, other] : {std::pair(found, expected), std::pair(expected, found)}) {
      for (const auto& [key, value] : of->entries()) {
        if (Same(&value, other->Find(key))) continue;
        return differs(absl::StrCat("the state ", key.string_value()), found->Find(key), expected->Find(key));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<ShardedParameter>& parameters_;
  const std::vector<Value> messages_;
  std::vector<Seen> group_of_;
  WholeOptimizer whole_;
};

}  // namespace

absl::StatusOr<WholeOptimizer> GatherOptimizer(const torch::optim::Optimizer& optimizer,
                                               const std::vector<ShardedParameter>& parameters,
                                               comm::ProcessGroup* group, const char* call, Exchange exchange) {
  Description description(optimizer, parameters);
  absl::StatusOr<std::string> own;
  const absl::Status thrown = TorchStatus("", [&] { own = description.Make(exchange); });
  if (!thrown.ok()) own = thrown;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> texts, comm::GatherAgreed(group, call, own));
  checkpoint::LoadOptions no_limit;
  no_limit.memory_limit = std::numeric_limits<size_t>::max() / 2;
  std::vector<Value> messages;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value message, checkpoint::Deserialize(text, no_limit));
    messages.push_back(std::move(message));
  }
  absl::StatusOr<WholeOptimizer> whole = Merger(parameters, std::move(messages)).Run();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(whole.status(), call));
  whole->own = std::move(description).own();
  return whole;
}

}  // namespace lockstep::fsdp::internal
