// Units that are gathered before they are used.

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/unit_sequence.h"
#include "lockstep/fsdp/testing/settings.h"

namespace lockstep::fsdp {
namespace {

using internal::UnitSequence;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OnRanks;

using AfterLayer = std::function<void(int layer)>;

// Each layer is a unit.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < 5; ++i) layers->push_back(torch::nn::Linear(8, 8));
    // The ranks are threads and have one generator.
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kFloat).cos().view_as(parameter) / 2);
    }
  }
  at::Tensor forward(
      at::Tensor x, const std::vector<int>& order, const AfterLayer& after = [](int) {}) {
    for (const int layer : order) {
      x = layers[layer]->as<torch::nn::Linear>()->forward(x).relu();
      after(layer);
    }
    return x;
  }
  torch::nn::ModuleList layers = register_module("layers", torch::nn::ModuleList());
};
TORCH_MODULE(Stack);

Options Paged(bool prefetch = true) {
  Options options;
  options.residency = Residency::kPaged;
  options.units = {"layers.*"};
  options.prefetch = prefetch;
  return options;
}

const std::vector<int> kInOrder = {0, 1, 2, 3, 4};

// In the second step rank 1 does not leave layer 1 before rank 0 has used layer 2, whose values rank 0 has from rank 1.
// Returns whether that worked within two seconds. The barrier completes what was begun before it: calls over shared
// memory progress only while their rank makes calls.
bool IsGatheredAhead(const std::string& backend, bool prefetch) {
  absl::Notification used;
  bool in_time = false;
  for (const absl::Status& status : OnRanks(2, backend, [&](comm::ProcessGroup& group) -> absl::Status {
         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Stack(), &group, Paged(prefetch)));
         for (int step = 0; step < 2; ++step) {
           const AfterLayer after = [&](int layer) {
             if (step == 0) return;
             if (layer == 1) EXPECT_EQ(group.Barrier(), absl::OkStatus());
             if (group.rank() == 0 && layer == 2) used.Notify();
             if (group.rank() == 1 && layer == 1) in_time = used.WaitForNotificationWithTimeout(absl::Seconds(2));
           };
           net(at::ones({2, 8}), kInOrder, after).sum().backward();
           LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
         }
         return group.Barrier();
       })) {
    EXPECT_EQ(status, absl::OkStatus());
  }
  return in_time;
}

TEST(Prefetch, GathersTheNextUnitWhileOneIsUsed) {
  for (const char* backend : {"gloo", "shm"}) {
    EXPECT_TRUE(IsGatheredAhead(backend, /*prefetch=*/true)) << backend;
    EXPECT_FALSE(IsGatheredAhead(backend, /*prefetch=*/false)) << backend;
  }
}

// Guesses are wrong in all steps but the second and the last two.
TEST(Prefetch, AWrongGuessChangesNothing) {
  const std::vector<std::vector<int>> orders = {kInOrder,        kInOrder, {0, 2, 1, 3, 4}, {0, 1, 4},
                                                {4, 3, 2, 1, 0}, {2},      {1, 1, 0, 1, 2}, kInOrder,
                                                {0, 1, 2, 3},    kInOrder, kInOrder,        kInOrder};
  std::vector<float> losses[2];
  for (const bool prefetch : {false, true}) {
    for (const absl::Status& status : OnRanks(3, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
           LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Stack(), &group, Paged(prefetch)));
           torch::optim::SGD optimizer(net.shards(), 0.01);
           for (const std::vector<int>& order : orders) {
             {
               const torch::NoGradGuard no_grad;
               net(at::ones({2, 8}), order);
             }
             const at::Tensor loss = net(at::ones({2, 8}) * (group.rank() + 1), order).sum();
             loss.backward();
             LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
             if (group.rank() == 0) losses[prefetch].push_back(loss.item<float>());
           }
           LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
           return group.Barrier();
         })) {
      EXPECT_EQ(status, absl::OkStatus());
    }
  }
  EXPECT_EQ(losses[false], losses[true]);
  EXPECT_NE(losses[true].front(), losses[true].back());
}

TEST(Prefetch, RanksThatUseUnitsInDifferentOrdersAreToldBoth) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const absl::Status& status : OnRanks(3, backend, [&](comm::ProcessGroup& group) -> absl::Status {
           LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Stack(), &group, Paged()));
           for (int step = 0; step < 2; ++step) {
             net(at::ones({2, 8}), kInOrder).sum().backward();
             LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
           }
           const std::vector<int> order = group.rank() == 1 ? std::vector<int>{0, 4, 1, 2, 3} : kInOrder;
           const absl::Status status = TorchStatus("", [&] { net(at::ones({2, 8}), order); });
           LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // the ranks are in step
           return status;
         })) {
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr("the ranks use units in different orders: rank 0 uses the unit of layers.1.weight in"),
                HasSubstr("rank 1 gathers the unit of layers.4.weight in step 2")));
    }
  }
}

TEST(UnitSequence, ExpectsWhatThePartInItsPlaceHadInTheLastStep) {
  UnitSequence sequence;
  sequence.BeginPart();
  for (const size_t unit : {0, 1}) sequence.Add({false, unit});
  sequence.Add({true, 1});
  EXPECT_TRUE(sequence.Next(2).empty());
  EXPECT_EQ(sequence.Fingerprint(), 0);
  sequence.EndStep();
  sequence.BeginPart();
  EXPECT_NE(sequence.Fingerprint(), 0);
  sequence.Add({false, 0});
  EXPECT_EQ(sequence.Next(3), (std::vector<UnitSequence::Entry>{{false, 1}, {true, 1}}));
  sequence.Add({false, 2});
  EXPECT_TRUE(sequence.Next(1).empty());
  EXPECT_EQ(sequence.Fingerprint(), 0);
  sequence.BeginPart();
  EXPECT_TRUE(sequence.Next(1).empty());
}

}  // namespace
}  // namespace lockstep::fsdp
