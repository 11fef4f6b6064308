#include "lockstep/checkpoint/state_dict.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {
namespace {

constexpr absl::string_view kBatchesTracked = "num_batches_tracked";

// The names below `module`, whose own name with a dot is `prefix`, in Python's order.
template <typename Visit>
void ForEachTensor(const torch::nn::Module& module, const std::string& prefix, const Visit& visit) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) visit(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) visit(prefix + item.key(), item.value());
  }
  for (const auto& child : module.named_children()) ForEachTensor(*child.value(), prefix + child.key() + ".", visit);
}

// Python gives each module a version: 2 for normalisations, which then have num_batches_tracked, and 1 for nearly all
// others.
void AddMetadata(const torch::nn::Module& module, const std::string& prefix, Value& metadata) {
  const bool tracks_batches = module.named_buffers(/*recurse=*/false).contains(std::string(kBatchesTracked));
  metadata.Set(absl::StripSuffix(prefix, "."), Value::Dict({{"version", tracks_batches ? 2 : 1}}));
  for (const auto& child : module.named_children()) AddMetadata(*child.value(), prefix + child.key() + ".", metadata);
}

std::string Shape(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

// The errors by kind, for one line.
class Misfits {
 public:
  void Missing(absl::string_view name) { missing_.push_back(Quoted(name)); }
  void Unexpected(absl::string_view name) { unexpected_.push_back(Quoted(name)); }
  void Mismatched(absl::string_view name, absl::string_view found, const at::Tensor& target) {
    mismatched_.push_back(absl::StrCat(Quoted(name), " (", found, ", the module has ", Shape(target), ")"));
  }

  absl::Status ToStatus(const std::string& module, size_t expected, size_t given, bool strict) const {
    std::vector<std::string> parts;
    if (strict) AddPart("missing", missing_, parts);
    if (strict) AddPart("unexpected", unexpected_, parts);
    AddPart("mismatched", mismatched_, parts);
    if (parts.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the state dict (", given, " keys) does not fit the module ", module,
                                                   " (", expected, " keys): ", absl::StrJoin(parts, "; ")));
  }

 private:
  static void AddPart(absl::string_view kind, const std::vector<std::string>& names, std::vector<std::string>& parts) {
    constexpr size_t kListed = 5;
    if (names.empty()) return;
    const size_t listed = std::min(kListed, names.size());
    const std::string more = names.size() > listed ? absl::StrCat(" and ", names.size() - listed, " more") : "";
    parts.push_back(
        absl::StrCat(names.size(), " ", kind, ": ", absl::StrJoin(names.begin(), names.begin() + listed, ", "), more));
  }

  std::vector<std::string> missing_;
  std::vector<std::string> unexpected_;
  std::vector<std::string> mismatched_;
};

// Whether the module named like the buffer `name` was saved before it had num_batches_tracked.
bool IsFromBeforeBatchesTracked(const Value& state_dict, absl::string_view name) {
  if (name != kBatchesTracked && !absl::EndsWith(name, ".num_batches_tracked")) return false;
  name.remove_suffix(kBatchesTracked.size());
  const Value* metadata = state_dict.attributes().Find("_metadata");
  const Value* module = metadata ? metadata->Find(absl::StripSuffix(name, ".")) : nullptr;
  const Value* version = module ? module->Find("version") : nullptr;
  return !version || !version->is_int() || version->int_value() < 2;
}

// As in Python, a tensor of one element fits a scalar, since older versions saved scalars that way.
bool Fits(const at::Tensor& source, const at::Tensor& target) {
  return source.sizes() == target.sizes() || (target.dim() == 0 && source.dim() == 1 && source.numel() == 1);
}

std::string Described(const Value& value) {
  return value.is_tensor() ? Shape(value.tensor()) : absl::StrCat("expected a tensor, found ", value.type_name());
}

struct Copy {
  at::Tensor from;
  at::Tensor to;
};

// As when a module's own state is loaded into it.
bool SameMemory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.is_alias_of(b) && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

void CopyAll(const std::vector<Copy>& copies) {
  const c10::NoGradGuard no_grad;
  for (const Copy& copy : copies) {
    if (!SameMemory(copy.from, copy.to)) copy.to.copy_(copy.from.reshape(copy.to.sizes()));
  }
}

std::vector<Value::Entry> KeysWithout(const Value& dict, absl::string_view prefix) {
  std::vector<Value::Entry> entries;
  for (const auto& [key, value] : dict.entries()) {
    entries.emplace_back(key.is_string() ? Value(absl::StripPrefix(key.string_value(), prefix)) : key, value);
  }
  return entries;
}

absl::StatusOr<Value> WithoutPrefix(const Value& state_dict, const std::string& prefix) {
  if (!state_dict.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("a state dict must be a dict, found ", state_dict.type_name()));
  }
  if (prefix.empty()) return state_dict;
  const Value* metadata = state_dict.attributes().Find("_metadata");
  Value without = Value::OrderedDict(KeysWithout(state_dict, prefix));
  if (metadata && metadata->is_dict()) {
    without.SetAttributes(Value::Dict({{"_metadata", Value::OrderedDict(KeysWithout(*metadata, prefix))}}));
  }
  return without;
}

// Detects the usual mistake: a whole checkpoint instead of its state dict.
std::string Hint(const Value& state_dict) {
  for (const auto& [key, value] : state_dict.entries()) {
    if (value.is_dict() && key.is_string())
      return absl::StrCat("; its entry ", Quoted(key.string_value()), " is a dict: is that the state dict?");
  }
  return "";
}

}  // namespace

Value StateDict(const torch::nn::Module& module) {
  std::vector<Value::Entry> entries;
  ForEachTensor(module, "", [&](const std::string& name, const at::Tensor& tensor) {
    entries.emplace_back(name, tensor.detach());
  });
  Value metadata = Value::OrderedDict();
  AddMetadata(module, "", metadata);
  Value state_dict = Value::OrderedDict(entries);
  state_dict.SetAttributes(Value::Dict({{"_metadata", metadata}}));
  return state_dict;
}

absl::Status LoadStateDict(torch::nn::Module& module, const Value& state_dict, const LoadStateDictOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value given, WithoutPrefix(state_dict, options.remove_prefix));
  Misfits misfits;
  std::vector<Copy> copies;
  absl::flat_hash_set<std::string> expected;
  ForEachTensor(module, "", [&](const std::string& name, const at::Tensor& target) {
    expected.insert(name);
    const Value* found = given.Find(name);
    if (!found) {
      if (!IsFromBeforeBatchesTracked(given, name)) misfits.Missing(name);
    } else if (!found->is_tensor() || !Fits(found->tensor(), target)) {
      misfits.Mismatched(name, Described(*found), target);
    } else {
      copies.push_back({found->tensor(), target});
    }
  });
  for (const auto& entry : given.entries()) {
    if (!entry.first.is_string())
      return absl::InvalidArgumentError(
          absl::StrCat("a state dict's keys must be str, found ", entry.first.type_name()));
    if (!expected.contains(entry.first.string_value())) misfits.Unexpected(entry.first.string_value());
  }
  const absl::Status fit = misfits.ToStatus(module.name(), expected.size(), given.size(), options.strict);
  if (!fit.ok()) return absl::InvalidArgumentError(absl::StrCat(fit.message(), Hint(given)));
  return TorchStatus("copy the state dict", [&] { CopyAll(copies); });
}

}  // namespace lockstep::checkpoint
