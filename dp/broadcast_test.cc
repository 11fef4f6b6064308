#include "lockstep/dp/broadcast.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/dp/internal/balance.h"

namespace lockstep::dp {
namespace {

using internal::ImbalanceWarning;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<c10::Device> Cpus(size_t count) { return std::vector<c10::Device>(count, c10::Device(c10::kCPU)); }

TEST(Broadcast, GivesEveryDeviceEachTensor) {
  const auto copies = Broadcast({at::arange(3), at::ones({2, 2})}, Cpus(3));
  ASSERT_EQ(copies.size(), 3);
  for (const auto& of_device : copies) {
    EXPECT_TRUE(of_device[0].equal(at::arange(3)));
    EXPECT_TRUE(of_device[1].equal(at::ones({2, 2})));
  }
}

TEST(Broadcast, UsesTheTensorsMemoryOnItsDevice) {
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(Broadcast({tensor}, Cpus(2))[1][0].is_alias_of(tensor));
}

// 1 + 2^-24 is 1 in float, so the order of the sum is in its bits.
TEST(Broadcast, SumsGradientsInTheOrderOfTheDevices) {
  at::Tensor tensor = at::ones({1}).set_requires_grad(true);
  const auto copies = Broadcast({tensor}, Cpus(3));
  const float tiny = 1.f / (1 << 24);
  (copies[2][0] * tiny + copies[1][0] * tiny + copies[0][0]).sum().backward();
  EXPECT_EQ(tensor.grad().item<float>(), 1.f);
  tensor.mutable_grad() = at::Tensor();
  const auto again = Broadcast({tensor}, Cpus(3));
  (again[2][0] + again[1][0] * tiny + again[0][0] * tiny).sum().backward();
  EXPECT_EQ(tensor.grad().item<float>(), 1.f + 2 * tiny);
}

TEST(Broadcast, SumsOnlyWhatWasUsed) {
  at::Tensor used = at::ones({2}).set_requires_grad(true), unused = at::ones({2}).set_requires_grad(true);
  const auto copies = Broadcast({used, unused}, Cpus(3));
  copies[1][0].sum().backward();
  EXPECT_TRUE(used.grad().equal(at::ones({2})));
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Broadcast, LeavesTensorsWithoutGradientsAlone) {
  at::Tensor trained = at::ones({2}).set_requires_grad(true);
  const auto copies = Broadcast({at::ones({2}), trained}, Cpus(2));
  EXPECT_FALSE(copies[1][0].requires_grad());
  EXPECT_TRUE(copies[1][1].requires_grad());
  const c10::NoGradGuard no_grad;
  EXPECT_FALSE(Broadcast({trained}, Cpus(2))[1][0].requires_grad());
}

TEST(Broadcast, IsDifferentiableTwice) {
  at::Tensor x = at::full({1}, 3.0).set_requires_grad(true);
  const auto copies = Broadcast({x}, Cpus(2));
  const at::Tensor y = copies[0][0].pow(3) + copies[1][0].pow(2);
  const at::Tensor first = torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  EXPECT_EQ(first.item<double>(), 27 + 6);
  EXPECT_EQ(torch::autograd::grad({first}, {x})[0].item<double>(), 18 + 2);
}

TEST(Broadcast, DoesNotWriteToAGradientThatSomebodyHolds) {
  at::Tensor x = at::ones({2}).set_requires_grad(true);
  const auto copies = Broadcast({x}, Cpus(2));
  at::Tensor held;
  copies[0][0].register_hook([&](const at::Tensor& gradient) { held = gradient; });
  (copies[0][0] + copies[1][0] * 2).sum().backward();
  EXPECT_TRUE(held.equal(at::ones({2})));
  EXPECT_TRUE(x.grad().equal(at::full({2}, 3.f)));
}

TEST(Broadcast, SumsSparseAndDenseGradients) {
  at::Tensor x = at::ones({3, 2}).set_requires_grad(true);
  const auto copies = Broadcast({x}, Cpus(2));
  const at::Tensor row = at::embedding(copies[0][0], at::tensor({1L}), -1, false, /*sparse=*/true);
  (row.sum() + copies[1][0].sum()).backward();
  EXPECT_TRUE(x.grad().select(1, 0).equal(at::tensor({1.f, 2.f, 1.f})));
}

TEST(Broadcast, NamesWhatIsWrong) {
  EXPECT_EQ(TorchStatus("",
                        [] {
                          Broadcast({at::ones({1}), at::Tensor()}, Cpus(1));
                        })
                .message(),
            "Broadcast: tensor 1 is undefined");
  EXPECT_EQ(TorchStatus("", [] { Broadcast({}, {}); }).message(), "Broadcast: expected one device or more, found none");
}

std::vector<c10::Device> Gpus(int count) {
  std::vector<c10::Device> gpus;
  for (int i = 0; i < count; ++i) gpus.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
  return gpus;
}

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(ImbalanceWarning, IsEmptyForDevicesThatAreAlike) {
  EXPECT_EQ(ImbalanceWarning(Gpus(2), {{80 * kGiB, 132}, {80 * kGiB, 132}}), "");
  EXPECT_EQ(ImbalanceWarning(Gpus(2), {{80 * kGiB, 132}, {60 * kGiB, 99}}), "");
  EXPECT_EQ(ImbalanceWarning({}, {}), "");
}

TEST(ImbalanceWarning, NamesTheDeviceWithLittleMemory) {
  EXPECT_THAT(ImbalanceWarning(Gpus(3), {{80 * kGiB, 132}, {80 * kGiB, 132}, {59 * kGiB, 132}}),
              AllOf(HasSubstr("cuda:2 has less than 75% of the memory of cuda:"), HasSubstr("leave cuda:2 out")));
}

TEST(ImbalanceWarning, NamesTheDeviceWithFewMultiprocessors) {
  EXPECT_THAT(ImbalanceWarning(Gpus(2), {{80 * kGiB, 98}, {80 * kGiB, 132}}),
              HasSubstr("cuda:0 has less than 75% of the multiprocessors of cuda:1 (98 against 132)"));
}

}  // namespace
}  // namespace lockstep::dp
