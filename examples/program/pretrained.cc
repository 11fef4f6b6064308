#include "lockstep/examples/program/pretrained.h"

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::examples {

using checkpoint::Value;

absl::Status LoadPretrained(const std::string& path, torch::nn::Module& module) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, options));
  const Value* const nested = file.Find("state_dict");
  return Annotate(LoadPossiblyWrapped(module, nested ? *nested : file), path);
}

absl::Status LoadPossiblyWrapped(torch::nn::Module& module, const Value& state_dict) {
  checkpoint::LoadStateDictOptions options;
  options.remove_prefix = checkpoint::FindPrefix(module, state_dict);
  return checkpoint::LoadStateDict(module, state_dict, options);
}

}  // namespace lockstep::examples
