// The parts of World that are about what is kept.

#include <ATen/ATen.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/elastic/world.h"

namespace lockstep::elastic {

using checkpoint::Value;
using internal::KeptThing;
using launch::StepFailure;

// Copies of the thing's buffers.
void World::RememberBuffers(KeptThing* thing) {
  const auto copies = std::make_shared<std::vector<at::Tensor>>();
  const std::vector<at::Tensor> buffers = thing->buffers;
  for (const at::Tensor& buffer : buffers) copies->push_back(buffer.detach().clone());
  thing->remember = [copies, buffers] {
    for (size_t i = 0; i < buffers.size(); ++i) (*copies)[i].copy_(buffers[i].detach());
  };
  thing->take_back = [copies, buffers] {
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].detach().copy_((*copies)[i]);
  };
}

absl::Status World::Keep(const std::string& name, torch::nn::Module& module) {
  KeptThing thing;
  thing.save = [&module]() -> absl::StatusOr<Value> { return checkpoint::StateDict(module); };
  thing.load = [&module](const Value& value) { return checkpoint::LoadStateDict(module, value); };
  thing.shares_memory = true;
  thing.buffers = module.buffers();
  RememberBuffers(&thing);
  for (const auto& parameter : module.named_parameters()) {
    thing.parameters.push_back({absl::StrCat(name, ": ", parameter.key()), parameter.value()});
  }
  return kept_->Add(name, std::move(thing));
}

absl::Status World::Keep(const std::string& name, torch::optim::Optimizer& optimizer) {
  KeptThing thing;
  thing.shares_memory = true;
  thing.save = [&optimizer] { return checkpoint::OptimizerStateDict(optimizer); };
  thing.load = [&optimizer](const Value& value) {
    return checkpoint::LoadOptimizerStateDict(optimizer, value, /*copy=*/false);
  };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::KeepBytes(const std::string& name, void* data, size_t size) {
  const auto copy = std::make_shared<std::string>(static_cast<const char*>(data), size);
  KeptThing thing;
  thing.save = [data, size]() -> absl::StatusOr<Value> {
    return Value::Bytes(absl::string_view(static_cast<const char*>(data), size));
  };
  thing.load = [data, size](const Value& value) { return CopyBytes(value, data, size); };
  thing.remember = [copy, data, size] { memcpy(copy->data(), data, size); };
  thing.take_back = [copy, data, size] { memcpy(data, copy->data(), size); };
  return kept_->Add(name, std::move(thing));
}

absl::Status World::CopyBytes(const Value& value, void* data, size_t size) {
  if (!value.is_bytes() || value.bytes_value().size() != size) {
    const std::string found = value.is_bytes() ? absl::StrCat(value.bytes_value().size(), " bytes") : "something else";
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " bytes, found ", found));
  }
  memcpy(data, value.bytes_value().data(), size);
  return absl::OkStatus();
}

// So that a rank that comes knows the failures before, and the number of the first step.
void World::KeepHistory() {
  KeptThing thing;
  thing.save = [this]() -> absl::StatusOr<Value> { return History(); };
  thing.load = [this](const Value& value) { return SetHistory(value); };
  kept_->Add("World", std::move(thing)).IgnoreError();  // kept already: Run() is called again
}

Value World::History() const {
  Value list = Value::List();
  for (const StepFailure& f : steps_->failures().failures()) list.Append(Value::Tuple({f.step, f.rank, f.cause}));
  return Value::Tuple({steps_->first_step(), list});
}

absl::Status World::SetHistory(const Value& value) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t first_step, checkpoint::GetInt(value, {0}));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> items, checkpoint::GetItems(value, {1}));
  std::vector<StepFailure> failures;
  for (const Value& item : items) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t step, checkpoint::GetInt(item, {0}));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t rank, checkpoint::GetInt(item, {1}));
    LOCKSTEP_ASSIGN_OR_RETURN(std::string cause, checkpoint::GetString(item, {2}));
    failures.push_back({step, static_cast<int>(rank), std::move(cause)});
  }
  steps_->Restore(first_step, std::move(failures));
  return absl::OkStatus();
}

absl::Status World::Keep(const std::string& name, std::function<absl::StatusOr<Value>()> save,
                         std::function<absl::Status(const Value& value)> load) {
  KeptThing thing;
  thing.save = std::move(save);
  thing.load = std::move(load);
  return kept_->Add(name, std::move(thing));
}

}  // namespace lockstep::elastic
