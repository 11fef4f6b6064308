// The C++ side of the peer test: peer_program COMMAND ARGUMENT...
//
//   resave FROM TO        loads FROM and saves it to TO
//   write TO              trains the small network 3 steps and saves {"state_dict", "optimizer", "input"} to TO
//   continue FROM TO      loads such a file, trains 3 steps and saves it to TO
//   values TO             saves one of every value and dtype to TO

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <limits>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::checkpoint {
namespace {

// Python's side builds the same in peer_test.py.
struct Net : torch::nn::Module {
  Net() {
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5)));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(5, 3).bias(false)));
  }
  at::Tensor forward(const at::Tensor& x) { return head->forward(body->forward(x).tanh()); }
  torch::nn::Sequential body = nullptr;
  torch::nn::Linear head = nullptr;
};

torch::optim::SGD MakeOptimizer(Net& net) {
  return torch::optim::SGD(net.parameters(),
                           torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3).nesterov(true));
}

void Train(Net& net, torch::optim::SGD& sgd, const at::Tensor& input, int steps) {
  for (int i = 0; i < steps; ++i) {
    sgd.zero_grad();
    net.forward(input).square().mean().backward();
    sgd.step();
  }
}

absl::Status SaveTraining(const std::string& path, const Net& net, const torch::optim::SGD& sgd,
                          const at::Tensor& input) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, OptimizerStateDict(sgd));
  return Save(path, Value::Dict({{"state_dict", StateDict(net)}, {"optimizer", optimizer}, {"input", input}}));
}

absl::Status Write(const std::string& to) {
  Net net;
  torch::optim::SGD sgd = MakeOptimizer(net);
  const at::Tensor input = torch::rand({7, 4});
  Train(net, sgd, input, 3);
  return SaveTraining(to, net, sgd, input);
}

absl::Status Continue(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value checkpoint, Load(from));
  Net net;
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, GetDict(checkpoint, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(net, state_dict));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, GetDict(checkpoint, "optimizer"));
  LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(sgd, optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor input, GetTensor(checkpoint, "input"));
  Train(net, sgd, input, 3);
  return SaveTraining(to, net, sgd, input);
}

absl::Status Resave(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, Load(from));
  return Save(to, value);
}

Value Dtypes() {
  Value dtypes = Value::Dict();
  for (int type = 0; type < static_cast<int>(at::ScalarType::NumOptions); ++type) {
    const auto scalar_type = static_cast<at::ScalarType>(type);
    const bool sub_byte =
        type >= static_cast<int>(at::ScalarType::UInt1) && type <= static_cast<int>(at::ScalarType::Int7);
    if (scalar_type == at::ScalarType::Undefined || c10::isQIntType(scalar_type) || sub_byte) continue;
    const at::Tensor tensor = torch::empty({4}, scalar_type);
    for (size_t i = 0; i < tensor.nbytes(); ++i) static_cast<char*>(tensor.data_ptr())[i] = i % 3 == 0;
    dtypes.Set(c10::toString(scalar_type), tensor);
  }
  return dtypes;
}

// Python's side knows these values.
absl::Status Values(const std::string& to) {
  const at::Tensor base = torch::arange(12.0);
  const Value shared = Value::List({1});
  const at::Tensor complex = torch::ones({2}, at::kComplexFloat);
  std::vector<Value> many;
  for (int i = 0; i < 2500; ++i) many.push_back(i);
  return Save(to, Value::Dict({{"none", Value()},
                               {"bool", true},
                               {"ints", Value::List({0, -1, 255, 256, 65535, 65536, INT32_MIN, INT64_MAX, INT64_MIN})},
                               {"floats", Value::Tuple({0.1, -0.0, std::numeric_limits<double>::infinity()})},
                               {"text", "na\u00efve \u20ac \U0001f600"},
                               {"bytes", Value::Bytes(absl::string_view("\0\xff\x80"
                                                                        "a",
                                                                        4))},
                               {"empty", Value::List({Value::Bytes(""), "", Value::List(), Value::Tuple(),
                                                      Value::Dict(), Value::OrderedDict()})},
                               {7, "int key"},
                               {Value(), "None key"},
                               {"many", Value::List(many)},
                               {"shared", Value::List({shared, shared})},
                               {"counter", Value::Dict({{30, 2}}, Value::DictKind::kCounter)},
                               {"base", base},
                               {"transposed", base.view({3, 4}).t()},
                               {"tail", base.slice(0, 8)},
                               {"scalar", torch::tensor(7)},
                               {"no_elements", torch::empty({0, 3})},
                               {"five_dimensions", torch::ones({1, 2, 1, 2, 1})},
                               {"conjugate", complex.conj()},
                               {"parameter", Value::Parameter(torch::ones({2}).set_requires_grad(true))},
                               {"frozen", Value::Parameter(torch::ones({2}))},
                               {"leaf", torch::ones({2}).set_requires_grad(true)},
                               {"dtypes", Dtypes()}}));
}

absl::Status Run(const std::vector<std::string>& arguments) {
  const auto is = [&](const char* command, size_t count) {
    return arguments.size() == count + 1 && arguments[0] == command;
  };
  if (is("resave", 2)) return Resave(arguments[1], arguments[2]);
  if (is("write", 1)) return Write(arguments[1]);
  if (is("continue", 2)) return Continue(arguments[1], arguments[2]);
  if (is("values", 1)) return Values(arguments[1]);
  return absl::InvalidArgumentError("usage: peer_program resave|write|continue|values FILE...");
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  const absl::Status status = lockstep::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
