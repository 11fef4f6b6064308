#include "lockstep/elastic/internal/kept_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/fsdp/internal/parameter_key.h"

namespace lockstep::elastic::internal {

using checkpoint::Value;
using fsdp::internal::KeptShard;

namespace {

std::string TextOf(at::ScalarType dtype, at::IntArrayRef sizes) {
  return absl::StrCat(c10::toString(dtype), " [", absl::StrJoin(sizes, ", "), "]");
}

// The parameter's memory.
at::Tensor Flat(const at::Tensor& parameter) { return parameter.detach().as_strided({parameter.numel()}, {1}); }

absl::Status CheckState(const Value& state, const std::string& name, const std::string& expected) {
  const Value* const found = state.Find(name);
  const std::string text = !found               ? "nothing"
                           : found->is_string() ? found->string_value()
                           : found->is_tensor() ? TextOf(found->tensor().scalar_type(), found->tensor().sizes())
                                                : "something else";
  if (text == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected ", expected, ", found ", text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeptModel>> KeptModel::Create(torch::nn::Module& module, int64_t piece_elements) {
  if (piece_elements < 16 || piece_elements % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ShardModel: piece_elements is ", piece_elements, ", expected a multiple of 16"));
  }
  std::unique_ptr<KeptModel> model(new KeptModel(module));
  std::set<const at::TensorImpl*> seen;
  std::set<const void*> storages;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (parameter.numel() > 0 && !storages.insert(parameter.storage().unsafeGetStorageImpl()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("ShardModel: ", item.key(), " shares its memory with another parameter"));
    }
    model->shards_.parameters.push_back({item.key(), parameter, parameter.scalar_type(), parameter.requires_grad()});
    if (!parameter.requires_grad()) continue;
    if (!parameter.is_non_overlapping_and_dense()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ShardModel: ", item.key(), ": expected a dense tensor, found gaps or overlaps"));
    }
    for (int64_t begin = 0; begin < parameter.numel(); begin += piece_elements) {
      const int64_t end = std::min(begin + piece_elements, parameter.numel());
      at::Tensor piece = at::empty({0}, parameter.options().requires_grad(false)).set_requires_grad(true);
      piece.set_data(Flat(parameter).narrow(0, begin, end - begin));
      model->pieces_.push_back(piece);
      model->piece_names_.push_back(item.key());
      model->shards_.shards.push_back({item.key(), begin, end, piece});
    }
  }
  if (model->pieces_.empty()) return absl::InvalidArgumentError("ShardModel: no parameter requires gradients");
  return model;
}

Value KeptModel::Save(bool has_all) const {
  std::vector<Value::Entry> state;
  for (const auto& [name, parameter, dtype, divided] : shards_.parameters) {
    const bool has_values = has_all || !divided;
    state.emplace_back(name,
                       has_values ? Value(parameter.detach().to(dtype)) : Value(TextOf(dtype, parameter.sizes())));
  }
  for (const auto& buffer : module_.named_buffers()) {
    if (buffer.value().defined()) state.emplace_back(buffer.key(), buffer.value().detach());
  }
  // Another cut does not fit the optimizer's state.
  std::string cut;
  for (const KeptShard& shard : shards_.shards) absl::StrAppend(&cut, shard.begin, "-", shard.end, " ");
  return Value::Dict({{"state", Value::Dict(state)}, {"pieces", cut}});
}

absl::Status KeptModel::Load(const Value& saved) {
  const c10::NoGradGuard no_grad;
  const Value* const state = saved.Find("state");
  const Value* const pieces = saved.Find("pieces");
  const Value own = Save(/*has_all=*/false);
  if (!state || !pieces || !pieces->is_string()) return absl::InvalidArgumentError("expected the state of a model");
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  const auto add = [&](const std::string& name, const at::Tensor& tensor, at::ScalarType dtype) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(CheckState(*state, name, TextOf(dtype, tensor.sizes())));
    if (state->Find(name)->is_tensor()) copies.emplace_back(tensor.detach(), state->Find(name)->tensor());
    return absl::OkStatus();
  };
  for (const auto& [name, parameter, dtype, divided] : shards_.parameters)
    LOCKSTEP_RETURN_IF_ERROR(add(name, parameter, dtype));
  for (const auto& buffer : module_.named_buffers()) {
    const at::Tensor& tensor = buffer.value();
    if (tensor.defined()) LOCKSTEP_RETURN_IF_ERROR(add(buffer.key(), tensor, tensor.scalar_type()));
  }
  if (pieces->string_value() != own.Find("pieces")->string_value())
    return absl::InvalidArgumentError("the rank that has the state has cut the parameters into other pieces");
  for (const auto& [to, from] : copies) to.copy_(from);
  return absl::OkStatus();
}

std::vector<at::Tensor> KeptModel::buffers() const {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module_.buffers()) {
    if (buffer.defined()) buffers.push_back(buffer);
  }
  return buffers;
}

void KeptModel::Assemble(bool has_all) {
  if (shards_.assemble) return shards_.assemble(has_all);
  if (!has_all) return;
  const c10::NoGradGuard no_grad;
  size_t next = 0;
  for (const auto& [name, parameter, dtype, divided] : shards_.parameters) {
    if (!divided) continue;
    const at::TensorOptions options = parameter.options().dtype(dtype).requires_grad(false);
    const at::Tensor whole = at::empty_strided(parameter.sizes(), parameter.strides(), options);
    for (; next < shards_.shards.size() && shards_.shards[next].parameter == name; ++next) {
      const KeptShard& shard = shards_.shards[next];
      Flat(whole).narrow(0, shard.begin, shard.end - shard.begin).copy_(shard.tensor);
    }
    fsdp::internal::ReplaceData(parameter, whole);
  }
}

}  // namespace lockstep::elastic::internal
