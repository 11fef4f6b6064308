// One C++ rank that trains a program of torch.export. exported_peer_test.py has its Python counterpart.
//
//   trainer --program=net.pt2 --batches=batches.pt --output=rank0
//           --rank=0 --world_size=2 --init_method=file:///folder/store
//
// --batches is a dict of each rank's list of batches; nets.py describes a batch. With a world size of 1 the program is
// trained alone, and else under ddp::Wrap. Writes {"losses": [a float a step], "state_dict": ...} to output.pt, the
// program to output.pt2, and the logits of the last batch, in the mode of --evaluate, to output_logits.pt. If anything
// fails, exits with 1 and prints the error to standard error.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <torch/utils.h>

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/models/exported/exported_module.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

DEFINE_string(program, "", "the file that Python exported");
DEFINE_string(batches, "", "the batches of all ranks");
DEFINE_int32(rank, 0, "this process's");
DEFINE_int32(world_size, 1, "ranks");
DEFINE_string(init_method, "", "where the ranks meet");
DEFINE_double(timeout, 60, "seconds that meeting, or one collective, may take");
DEFINE_string(output, "", "where to write what came out");
DEFINE_string(optimizer, "sgd", "sgd, with momentum 0.9, or adamw");
DEFINE_double(lr, 0.05, "the optimizer's");
DEFINE_bool(evaluate, false, "evaluate the last batch in the other mode than the export's");
DEFINE_double(bucket_cap_mb, 25, "as in ddp::Options, like the one below");
DEFINE_bool(find_unused_parameters, false, "");

namespace lockstep::models::exported {
namespace {

using checkpoint::Value;
using Forward = std::function<c10::IValue(std::vector<c10::IValue> inputs, NamedInputs named)>;

c10::IValue InputOf(const Value& value) {
  if (value.is_tensor()) return value.tensor();
  if (value.is_bool()) return value.bool_value();
  if (value.is_int()) return value.int_value();
  if (value.is_double()) return value.double_value();
  if (value.is_dict()) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    for (const auto& [key, item] : value.entries()) dict.insert(key.string_value(), InputOf(item));
    return dict;
  }
  if (!value.is_list() && !value.is_tuple()) return {};
  std::vector<c10::IValue> items;
  for (const Value& item : value.items()) items.push_back(InputOf(item));
  return c10::ivalue::Tuple::create(std::move(items));
}

at::Tensor Logits(const c10::IValue& output) {
  if (output.isGenericDict()) return output.toGenericDict().at("logits").toTensor();
  return output.isTuple() ? output.toTupleRef().elements()[0].toTensor() : output.toTensor();
}

at::Tensor Run(const Forward& forward, const Value& batch) {
  std::vector<c10::IValue> inputs;
  for (const Value& input : batch.Find("inputs")->items()) inputs.push_back(InputOf(input));
  NamedInputs named;
  for (const auto& [name, input] : batch.Find("named")->entries()) {
    named.emplace_back(name.string_value(), InputOf(input));
  }
  return Logits(forward(std::move(inputs), std::move(named)));
}

template <typename Optimizer>
Value Train(const Forward& forward, Optimizer optimizer, const std::vector<Value>& batches) {
  std::vector<Value> losses;
  for (const Value& batch : batches) {
    optimizer.zero_grad();
    const at::Tensor logits = Run(forward, batch);
    const at::Tensor& targets = batch.Find("targets")->tensor();
    const at::Tensor loss =
        targets.is_floating_point() ? at::mse_loss(logits, targets) : at::cross_entropy_loss(logits, targets);
    losses.emplace_back(loss.item<double>());
    loss.backward();
    optimizer.step();
  }
  return Value::List(std::move(losses));
}

absl::StatusOr<Value> TrainWith(const Forward& forward, const ExportedModule& net, const std::vector<Value>& batches) {
  torch::manual_seed(FLAGS_rank);  // for dropout
  return TorchStatusOr("training", [&] {
    if (FLAGS_optimizer == "sgd") {
      return Train(forward, optim::SGD(net->parameters(), optim::SGDOptions(FLAGS_lr).momentum(0.9)), batches);
    }
    return Train(forward, optim::AdamW(net->parameters(), optim::AdamWOptions(FLAGS_lr)), batches);
  });
}

// The positional inputs: a wrapped module forwards no others.
c10::IValue CallWrapped(ddp::DistributedDataParallel<ExportedModule>& wrapped, std::vector<c10::IValue> inputs) {
  if (inputs.size() == 1) return wrapped(inputs[0]);
  return wrapped(inputs[0], inputs[1]);
}

absl::StatusOr<Value> TrainTogether(const ExportedModule& net, const std::vector<Value>& batches) {
  comm::InitOptions options;
  options.backend = "gloo";
  options.init_method = FLAGS_init_method;
  options.rank = FLAGS_rank;
  options.world_size = FLAGS_world_size;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  ddp::Options wrap;
  wrap.bucket_cap_mb = FLAGS_bucket_cap_mb;
  wrap.find_unused_parameters = FLAGS_find_unused_parameters;
  LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, ddp::Wrap(net, group.get(), wrap));
  return TrainWith(
      [&](std::vector<c10::IValue> inputs, NamedInputs) { return CallWrapped(wrapped, std::move(inputs)); }, net,
      batches);
}

absl::Status Main() {
  at::set_num_threads(1);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value all, checkpoint::Load(FLAGS_batches));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> batches,
                            checkpoint::GetItems(all, {absl::StrCat("rank", FLAGS_rank)}));
  LOCKSTEP_ASSIGN_OR_RETURN(ExportedModule net, Load(FLAGS_program));
  const Forward call = [&](std::vector<c10::IValue> inputs, NamedInputs named) {
    return net->Call(std::move(inputs), std::move(named));
  };
  absl::StatusOr<Value> losses = FLAGS_world_size == 1 ? TrainWith(call, net, batches) : TrainTogether(net, batches);
  LOCKSTEP_RETURN_IF_ERROR(losses.status());
  LOCKSTEP_RETURN_IF_ERROR(Save(absl::StrCat(FLAGS_output, ".pt2"), net));
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint::Save(absl::StrCat(FLAGS_output, ".pt"),
                       Value::Dict({{"losses", *losses}, {"state_dict", checkpoint::StateDict(*net)}})));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor output, TorchStatusOr("evaluation", [&] {
                              const c10::NoGradGuard no_grad;
                              if (FLAGS_evaluate) net->train(!net->is_training());
                              torch::manual_seed(FLAGS_rank);
                              return Run(call, batches.back());
                            }));
  return checkpoint::Save(absl::StrCat(FLAGS_output, "_logits.pt"), output);
}

}  // namespace
}  // namespace lockstep::models::exported

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  const absl::Status status = lockstep::models::exported::Main();
  if (!status.ok()) std::cerr << "trainer: rank " << FLAGS_rank << ": " << status << std::endl;
  return status.ok() ? 0 : 1;
}
