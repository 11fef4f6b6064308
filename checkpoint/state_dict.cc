#include "lockstep/checkpoint/state_dict.h"

#include <c10/core/GradMode.h>
#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/non_persistent_buffers.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {
namespace {

constexpr absl::string_view kBatchesTracked = "num_batches_tracked";

// The names below `module`, whose own name with a dot is `prefix`, in Python's order.
template <typename Visit>
void ForEachTensor(const torch::nn::Module& module, const std::string& prefix, const Visit& visit) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) visit(prefix + item.key(), item.value());
  const auto* some = dynamic_cast<const NonPersistentBuffers*>(&module);
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (!item.value().defined() || (some && some->IsNonPersistent(item.key()))) continue;
    visit(prefix + item.key(), item.value());
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

std::string Shape(const at::Tensor& tensor) {
  const char* const kind = tensor.is_quantized() ? "quantized " : tensor.layout() == at::kStrided ? "" : "sparse ";
  return absl::StrCat(kind, "[", absl::StrJoin(tensor.sizes(), ", "), "]");
}

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

std::vector<std::string> Quoted(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  quoted.reserve(names.size());
  for (const std::string& name : names) quoted.push_back(Quoted(name));
  return quoted;
}

// The first five of `names`.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kListed = 5;
  const size_t listed = std::min(kListed, names.size());
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + listed, ", "),
                      names.size() > listed ? absl::StrCat(" and ", names.size() - listed, " more") : "");
}

// Returns whether the module named like the buffer `name` was saved before it had num_batches_tracked.
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
  if (source.layout() != target.layout() || source.is_quantized() != target.is_quantized()) return false;
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

// The wrappers whose names stand before a module's own.
constexpr absl::string_view kWrappers[] = {"module.", "_orig_mod.", "model."};

// Each chain of wrappers at the start of `name`, from none to the longest.
std::vector<absl::string_view> WrapperChains(absl::string_view name) {
  std::vector<absl::string_view> chains = {""};
  absl::string_view rest = name;
  const auto strip = [&](absl::string_view wrapper) { return absl::ConsumePrefix(&rest, wrapper); };
  while (std::any_of(std::begin(kWrappers), std::end(kWrappers), strip)) {
    chains.push_back(name.substr(0, name.size() - rest.size()));
  }
  return chains;
}

// Detects the usual mistakes: a whole checkpoint instead of its state dict, and the state dict of a wrapped module.
std::string Hint(const torch::nn::Module& module, const Value& state_dict) {
  const std::string prefix = FindPrefix(module, state_dict);
  if (!prefix.empty()) {
    return absl::StrCat("; more keys fit without the prefix ", Quoted(prefix),
                        ": set LoadStateDictOptions::remove_prefix");
  }
  for (const auto& [key, value] : state_dict.entries()) {
    if (value.is_dict() && key.is_string())
      return absl::StrCat("; its entry ", Quoted(key.string_value()), " is a dict: is that the state dict?");
  }
  return "";
}

absl::Status CheckKeys(const Value& state_dict) {
  for (const auto& entry : state_dict.entries()) {
    if (!entry.first.is_string())
      return absl::InvalidArgumentError(
          absl::StrCat("a state dict's keys must be str, found ", entry.first.type_name()));
  }
  return absl::OkStatus();
}

bool IsIgnored(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return pattern == name || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

// The plan of a load: the copies to make, and the keys without one.
struct Plan {
  std::vector<Copy> copies;
  LoadedKeys keys;
  std::vector<std::string> mismatched;  // with both shapes
  size_t expected = 0;                  // keys of the module

  absl::Status Check(bool strict) const {
    std::vector<std::string> parts;
    const auto add = [&](absl::string_view kind, const std::vector<std::string>& names) {
      if (!names.empty()) parts.push_back(absl::StrCat(names.size(), " ", kind, ": ", Listed(names)));
    };
    if (strict) add("missing", Quoted(keys.missing));
    if (strict) add("unexpected", Quoted(keys.unexpected));
    add("mismatched", mismatched);
    return parts.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(parts, "; "));
  }
};

Plan MakePlan(const torch::nn::Module& module, const Value& given, const std::vector<std::string>& ignored) {
  Plan plan;
  absl::flat_hash_set<std::string> expected;
  ForEachTensor(module, "", [&](const std::string& name, const at::Tensor& target) {
    expected.insert(name);
    if (IsIgnored(name, ignored)) return;
    const Value* found = given.Find(name);
    if (!found) {
      if (!IsFromBeforeBatchesTracked(given, name)) plan.keys.missing.push_back(name);
    } else if (!found->is_tensor() || !Fits(found->tensor(), target)) {
      plan.mismatched.push_back(
          absl::StrCat(Quoted(name), " (", Described(*found), ", the module has ", Shape(target), ")"));
    } else {
      plan.copies.push_back({found->tensor(), target});
    }
  });
  for (const auto& entry : given.entries()) {
    const std::string& name = entry.first.string_value();
    if (!expected.contains(name) && !IsIgnored(name, ignored)) plan.keys.unexpected.push_back(name);
  }
  plan.keys.loaded = static_cast<int64_t>(plan.copies.size());
  plan.expected = expected.size();
  return plan;
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
  LOCKSTEP_RETURN_IF_ERROR(CheckKeys(given));
  Plan plan = MakePlan(module, given, options.ignored_keys);
  const absl::Status fit = plan.Check(options.strict);
  if (!fit.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the state dict (", given.size(), " keys) does not fit the module ",
                                                   module.name(), " (", plan.expected, " keys): ", fit.message(),
                                                   Hint(module, state_dict)));
  }
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("copy the state dict", [&] { CopyAll(plan.copies); }));
  if (options.keys) *options.keys = std::move(plan.keys);
  return absl::OkStatus();
}

std::string FindPrefix(const torch::nn::Module& module, const Value& state_dict) {
  if (!state_dict.is_dict()) return "";
  absl::flat_hash_map<std::string, at::Tensor> targets;
  ForEachTensor(module, "", [&](const std::string& name, const at::Tensor& tensor) { targets.emplace(name, tensor); });
  absl::flat_hash_map<std::string, size_t> fitting;
  std::string best;
  size_t most = 0;
  for (const auto& [key, value] : state_dict.entries()) {
    if (!key.is_string() || !value.is_tensor()) continue;
    const absl::string_view name = key.string_value();
    for (const absl::string_view prefix : WrapperChains(name)) {
      const auto target = targets.find(name.substr(prefix.size()));
      if (target == targets.end() || !Fits(value.tensor(), target->second)) continue;
      const size_t count = ++fitting[prefix];
      // The shorter prefix wins a tie.
      if (count > most || (count == most && prefix.size() < best.size())) {
        most = count;
        best = std::string(prefix);
      }
    }
  }
  return best;
}

}  // namespace lockstep::checkpoint
