// Fully sharded training on a device, without a GPU: when a thread waits for it, and what Wrap() refuses. The tests of
// testing/device_cases.cc run on it too.

#include "lockstep/fsdp/testing/simulated_device.h"

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/device_ranks.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using ::testing::HasSubstr;
using testing::HostWaits;
using testing::MoveToTestDevice;
using testing::OnDeviceRanks;
using testing::Scale;
using testing::TestDevice;

TEST(SimulatedDevice, NoThreadWaitsForItBeforeTheStep) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    torch::nn::Sequential mlp;
    for (int i = 0; i < 6; ++i) mlp->push_back(torch::nn::Linear(16, 16));
    MoveToTestDevice(*mlp);
    Options options;
    options.units = {"*"};
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(mlp, &group, options));
    optim::SGD optimizer(net.shards(), optim::SGDOptions(0.1));
    const at::Tensor x = at::ones({4, 16}).to(TestDevice());
    for (int step = 0; step < 2; ++step) {
      const int64_t before = HostWaits(), streams = testing::StreamWaits();
      net(x).sum().backward();
      EXPECT_EQ(HostWaits(), before);
      // The stream that sums waits for each unit's gradients, and each buffer is taken from it again.
      EXPECT_GE(testing::StreamWaits() - streams, 6);
      LOCKSTEP_RETURN_IF_ERROR(net.PrepareGradients());
      EXPECT_EQ(HostWaits() - before, 2) << "for the sums, and for the flags";
      LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(1).status());
      EXPECT_EQ(HostWaits() - before, 5) << "for the norms, and for the sum of them";
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      EXPECT_EQ(HostWaits() - before, 5);
    }
    return absl::OkStatus();
  });
}

// The error of rank 0's Wrap(); `change` changes the module or options of rank 0.
void ExpectRefused(const std::function<void(Scale& scale, Options& options)>& change, const std::string& message) {
  OnDeviceRanks(2, [&](comm::ProcessGroup& group) -> absl::Status {
    Scale scale;
    MoveToTestDevice(*scale);
    Options options;
    change(scale, options);
    EXPECT_THAT(std::string(Wrap(scale, &group, options).status().message()), HasSubstr(message));
    return absl::OkStatus();
  });
}

TEST(SimulatedDevice, WhatNeedsTheCpuIsRefused) {
  ExpectRefused([](Scale&, Options& options) { options.residency = Residency::kSharedPages; },
                "fsdp::Wrap: residency kSharedPages: expected parameters on the CPU, found weight on simulated:0");
  ExpectRefused([](Scale&, Options& options) { options.debug = true; },
                "fsdp::Wrap: debug: expected parameters on the CPU, found weight on simulated:0");
}

TEST(SimulatedDevice, ParametersAreOnOneDevice) {
  ExpectRefused([](Scale& scale, Options&) { scale->register_parameter("on_cpu", at::ones({3})); },
                "expected all parameters on simulated:0, as weight, found on_cpu on cpu");
}

TEST(SimulatedDevice, RanksOnDifferentDevicesAreTold) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    Scale scale;
    if (group.rank() == 1) MoveToTestDevice(*scale);
    Options options;
    options.residency = Residency::kPaged;
    EXPECT_THAT(std::string(Wrap(scale, &group, options).status().message()), HasSubstr(", on simulated"));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep::fsdp
