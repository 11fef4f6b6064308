// Lists the tensors of a PyTorch checkpoint, from a program that depends on Lockstep's checkpoints alone.
//
//   checkpoint_tool model.pt
//
// Without a file it saves a small model, loads it into another one, and prints
//
//   ["epoch"]: 3
//   ["state_dict"]["weight"]: Float [2, 3]
//   ["state_dict"]["bias"]: Float [2]
//   loaded: the same parameters
//
// and fails if a parameter differs.

#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"

namespace {

using lockstep::checkpoint::Value;

void List(const std::string& place, const Value& value) {
  if (value.is_dict()) {
    for (const auto& [key, item] : value.entries()) {
      List(absl::StrCat(place, "[\"", key.is_string() ? key.string_value() : "?", "\"]"), item);
    }
  } else if (value.is_tensor()) {
    std::cout << place << ": " << c10::toString(value.tensor().scalar_type()) << " " << value.tensor().sizes() << "\n";
  } else if (value.is_int()) {
    std::cout << place << ": " << value.int_value() << "\n";
  } else {
    std::cout << place << ": another value\n";
  }
}

absl::Status ListFile(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, lockstep::checkpoint::Load(path, {.map_location = "cpu"}));
  List("", value);
  return absl::OkStatus();
}

absl::Status SaveAndLoad() {
  const std::string path = "checkpoint_tool.pt";
  torch::nn::Linear saved(3, 2), loaded(3, 2);
  const Value value = Value::Dict({{"epoch", 3}, {"state_dict", lockstep::checkpoint::StateDict(*saved)}});
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::Save(path, value));
  LOCKSTEP_RETURN_IF_ERROR(ListFile(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state, lockstep::checkpoint::LoadEntry(path, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::LoadStateDict(*loaded, state));
  std::remove(path.c_str());
  if (!saved->weight.equal(loaded->weight) || !saved->bias.equal(loaded->bias)) {
    return absl::InternalError("the parameters differ from those that were saved");
  }
  std::cout << "loaded: the same parameters" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = argc == 2 ? ListFile(argv[1]) : SaveAndLoad();
  if (!status.ok()) std::cerr << "checkpoint_tool: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
