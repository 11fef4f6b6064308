// The C++ side of averaged_model_peer_test.py: averaged_model_program FROM TO
//
// FROM is a list of {"name", "fn": the average's function, "decay", "use_buffers", "average": a state to continue from
// or None, "models": the model's state at each update, "batches"}. Saves {name: {"average": the state after the
// updates, "after": the one after UpdateBatchNorm() over the batches}, ...} to TO.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <memory>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/optim/averaged_model.h"

namespace lockstep::optim {
namespace {

using checkpoint::Value;

AveragedModelOptions ToOptions(const Value& given) {
  const std::string fn = given.Find("fn")->string_value();
  const double decay = given.Find("decay")->double_value();
  AveragedModelOptions options;
  options.use_buffers = given.Find("use_buffers")->bool_value();
  if (fn == "ema") options.avg_fn = GetEmaAvgFn(decay);
  if (fn == "ema multi") options.multi_avg_fn = GetEmaMultiAvgFn(decay);
  if (fn == "swa") options.avg_fn = GetSwaAvgFn();
  if (fn == "swa multi") options.multi_avg_fn = GetSwaMultiAvgFn();
  return options;
}

// The tensors of StateDict() are the module's, which go on changing.
Value Copy(const Value& state_dict) {
  Value copy = Value::OrderedDict();
  for (const auto& [name, tensor] : state_dict.entries()) copy.Set(name, tensor.tensor().detach().clone());
  return copy;
}

absl::StatusOr<Value> Continue(const Value& given) {
  torch::nn::Sequential model(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<AveragedModel> average,
                            AveragedModel::Create(*model, ToOptions(given)));
  if (const Value& state = *given.Find("average"); !state.is_none())
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*average, state));
  for (const Value& state_dict : given.Find("models")->items()) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*model, state_dict));
    average->UpdateParameters(*model);
  }
  const Value averaged = Copy(checkpoint::StateDict(*average));
  UpdateBatchNorm(*average, [&] {
    for (const Value& batch : given.Find("batches")->items())
      average->module<torch::nn::SequentialImpl>()->forward(batch.tensor());
  });
  return Value::Dict({{"average", averaged}, {"after", checkpoint::StateDict(*average)}});
}

absl::Status Run(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value cases, checkpoint::Load(from));
  Value results = Value::Dict();
  for (const Value& given : cases.items()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value result, Continue(given));
    results.Set(*given.Find("name"), result);
  }
  return checkpoint::Save(to, results);
}

}  // namespace
}  // namespace lockstep::optim

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  absl::Status status;
  status.Update(lockstep::TorchStatus("the cases", [&] { status = lockstep::optim::Run(argv[1], argv[2]); }));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
