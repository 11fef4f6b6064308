// Tests of operators whose parameters are freed between any two uses, on the device that DEVICE names. operators_test has
// many more on the CPU: what an operator asks for does not depend on its device.

#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/device_ranks.h"

namespace lockstep::fsdp::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Body = std::function<at::Tensor(const at::Tensor& x, const Tensors& p)>;

struct ProbeImpl : torch::nn::Module {
  explicit ProbeImpl(Body body) : body(std::move(body)) {
    for (int i = 0; i < 3; ++i) {
      const at::Tensor numbers = at::arange(16 * 16, at::kFloat).add(3.7 * i).sin().mul(0.3);
      p.push_back(register_parameter(absl::StrCat("p", i), numbers.view({16, 16}).clone()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return body(x, p); }
  const Body body;
  Tensors p;
};
TORCH_MODULE(Probe);

Probe MakeProbe(const Body& body) {
  Probe probe(body);
  MoveToTestDevice(*probe);
  return probe;
}

// Each parameter is a unit, and one is whole at a time.
absl::Status Compare(comm::ProcessGroup& group, const Body& body) {
  const at::Tensor x = at::arange(4 * 16, at::kFloat).cos().view({4, 16}).to(TestDevice()).requires_grad_();
  const Probe plain = MakeProbe(body);
  const at::Tensor expected = plain->body(x, plain->p);
  expected.sum().backward();
  const at::Tensor expected_of_x = std::exchange(x.mutable_grad(), at::Tensor());
  Options options;
  options.residency = Residency::kPaged;
  options.unit_bytes = options.whole_units = 1;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(MakeProbe(body), &group, options));
  const at::Tensor found = net(x);
  EXPECT_TRUE(found.cpu().equal(expected.cpu()));
  found.sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(expected_of_x.cpu()));
  return net.Step([&] {
    for (size_t i = 0; i < net.shards().size(); ++i) {
      const at::Tensor& gradient = plain->p[net.shard_names()[i][1] - '0'].grad();
      EXPECT_TRUE(net.shards()[i].grad().cpu().equal(gradient.cpu().flatten())) << net.shard_names()[i];
    }
  });
}

TEST(Devices, OperatorsFindFreedParameters) {
  const std::vector<std::pair<const char*, Body>> bodies = {
      {"matmul", [](auto& x, auto& p) { return x.matmul(p[0]).matmul(p[1]).matmul(p[2]); }},
      {"linear", [](auto& x, auto& p) { return at::linear(at::relu(at::linear(x, p[0], p[1][0])), p[2]); }},
      {"views", [](auto& x, auto& p) { return x.mul(p[0].t().narrow(0, 2, 4)) + p[1].view({-1})[7] * p[2].sum(); }},
      {"a list",
       [](auto& x, auto& p) {
         return at::cat({p[0], x, p[1]}).mm(p[2]);
       }},
      {"indices",
       [](auto& x, auto& p) {
         return at::embedding(p[0], at::arange(4, at::TensorOptions(at::kLong).device(x.device()))) * x +
                p[1].index_select(0, at::arange(4, at::TensorOptions(at::kLong).device(x.device()))) * p[2][3];
       }},
      {"convolution",
       [](auto& x, auto& p) {
         return at::conv2d(x.view({1, 1, 8, 8}), p[0].view({-1}).narrow(0, 0, 18).view({2, 1, 3, 3})) * p[1].mean() *
                p[2].max();
       }},
      {"norm", [](auto& x, auto& p) { return at::layer_norm(x.mm(p[2]), {16}, p[0][1], p[1][2]); }},
      {"twice", [](auto& x, auto& p) { return x.mm(p[0]).mm(p[1]).mm(p[0]).mm(p[1]) * p[2][0]; }},
  };
  OnDeviceRanks(1, [&](comm::ProcessGroup& group) -> absl::Status {
    for (const auto& [name, body] : bodies) {
      SCOPED_TRACE(name);
      // LibTorch has convolutions for the devices that it knows only.
      const bool known = TestDevice().type() != c10::DeviceType::PrivateUse1;
      if (!known && name == std::string("convolution")) continue;
      LOCKSTEP_RETURN_IF_ERROR(Compare(group, body));
    }
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep::fsdp::testing
