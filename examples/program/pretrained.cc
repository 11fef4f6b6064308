#include "lockstep/examples/program/pretrained.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;

absl::StatusOr<Value> ReadStateDict(const std::string& path) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";
  if (absl::EndsWith(path, ".safetensors")) {
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::Safetensors file, checkpoint::LoadSafetensors(path, options));
    return std::move(file.tensors);
  }
  for (const char* key : {"state_dict", "model"}) {
    absl::StatusOr<Value> entry = checkpoint::LoadEntry(path, key, options);
    if (entry.ok() ? entry->is_dict() : !absl::IsNotFound(entry.status())) return entry;
  }
  return checkpoint::Load(path, options);
}

// The number of rows of the last layer in the file if only that differs, or 0.
int64_t OtherClasses(const torch::nn::Module& module, const Value& state_dict, const std::string& prefix) {
  const std::string layer = LastLayer(module);
  const Value own = checkpoint::StateDict(module);
  int64_t classes = 0;
  for (const auto& [key, value] : own.entries()) {
    if (!absl::StartsWith(key.string_value(), layer + ".")) continue;
    const Value* found = state_dict.Find(absl::StrCat(prefix, key.string_value()));
    if (!found || !found->is_tensor() || found->tensor().dim() != value.tensor().dim() || value.tensor().dim() == 0)
      return 0;
    if (found->tensor().sizes().slice(1) != value.tensor().sizes().slice(1)) return 0;
    if (found->tensor().size(0) != value.tensor().size(0)) classes = found->tensor().size(0);
  }
  return classes;
}

}  // namespace

std::string LastLayer(const torch::nn::Module& module) {
  const auto parameters = module.named_parameters();
  if (parameters.is_empty()) return "";
  const std::string& name = parameters.back().key();
  return name.substr(0, name.rfind('.'));
}

absl::StatusOr<int64_t> LoadPretrained(const std::string& path, torch::nn::Module& module) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, ReadStateDict(path));
  checkpoint::LoadStateDictOptions options;
  options.remove_prefix = checkpoint::FindPrefix(module, state_dict);
  const int64_t classes = state_dict.is_dict() ? OtherClasses(module, state_dict, options.remove_prefix) : 0;
  if (classes > 0) options.ignored_keys = {absl::StrCat(LastLayer(module), ".*")};
  LOCKSTEP_RETURN_IF_ERROR(Annotate(checkpoint::LoadStateDict(module, state_dict, options), path));
  return classes;
}

}  // namespace lockstep::examples
