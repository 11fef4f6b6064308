#include "lockstep/examples/program/pretrained.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;

constexpr char kWrapped[] = "module.";

bool IsWrapped(const Value& state_dict) {
  if (!state_dict.is_dict() || state_dict.size() == 0) return false;
  const std::vector<Value::Entry>& entries = state_dict.entries();
  return std::all_of(entries.begin(), entries.end(), [](const Value::Entry& entry) {
    return entry.first.is_string() && absl::StartsWith(entry.first.string_value(), kWrapped);
  });
}

}  // namespace

absl::Status LoadPretrained(const std::string& path, torch::nn::Module& module) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, options));
  const Value* const nested = file.Find("state_dict");
  return Annotate(LoadPossiblyWrapped(module, nested ? *nested : file), path);
}

absl::Status LoadPossiblyWrapped(torch::nn::Module& module, const Value& state_dict) {
  checkpoint::LoadStateDictOptions options;
  if (IsWrapped(state_dict)) options.remove_prefix = kWrapped;
  return checkpoint::LoadStateDict(module, state_dict, options);
}

}  // namespace lockstep::examples
