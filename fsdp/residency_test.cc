// Where parameters are, when they are whole, and the errors of reading them when they are not.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"

namespace lockstep::fsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OnRanks;
using testing::OnTwoRanks;
using testing::Scale;
using testing::Setting;

// Each layer is a unit.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < 4; ++i) layers->push_back(torch::nn::Linear(8, 8));
  }
  at::Tensor forward(at::Tensor x, const std::vector<int>& order = {0, 1, 2, 3}) {
    for (const int layer : order) x = layers[layer]->as<torch::nn::Linear>()->forward(x).relu();
    return x;
  }
  torch::nn::ModuleList layers = register_module("layers", torch::nn::ModuleList());
};
TORCH_MODULE(Stack);

Options Paged(std::vector<std::string> units = {}) {
  Options options;
  options.residency = Residency::kPaged;
  options.units = std::move(units);
  return options;
}

// The error of f(), or "".
std::string ErrorOf(const std::function<void()>& f) { return std::string(TorchStatus("", f).message()); }

TEST(SharedPages, TheRanksHaveTheParametersInCommon) {
  EXPECT_EQ(OnTwoRanks("shm",
                       [](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group));
                         if (group.rank() == 1) net.module()->weight.data().fill_(8);
                         LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
                         EXPECT_TRUE(net.module()->weight.equal(at::full({50}, 8.0)));
                         int64_t own = 0;
                         for (const at::Tensor& shard : net.shards()) own += shard.numel();
                         EXPECT_EQ(own, group.rank() == 0 ? 48 : 5);
                         return group.Barrier();
                       }),
            absl::OkStatus());
}

TEST(Paged, OneRankCanBePagedToo) {
  EXPECT_EQ(OnRanks(1, "gloo",
                    [](comm::ProcessGroup& group) -> absl::Status {
                      LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, Paged()));
                      EXPECT_EQ(net.module()->weight.data_ptr(), nullptr);
                      net(at::full({50}, 3.0)).backward();
                      return net.Step([&] { EXPECT_TRUE(net.shards()[0].grad().equal(at::full({50}, 3.0))); });
                    })[0],
            absl::OkStatus());
}

TEST(Paged, ParametersAreWholeInForwardAndFreedWhenTheirGradientsAreThere) {
  EXPECT_EQ(OnTwoRanks("gloo",
                       [](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Stack(), &group, Paged({"layers.*"})));
                         const auto whole = [&] {
                           std::vector<bool> whole;
                           for (const auto& layer : *net.module()->layers)
                             whole.push_back(layer->parameters()[0].data_ptr() != nullptr);
                           return whole;
                         };
                         const at::Tensor x = at::ones({2, 8}).requires_grad_();
                         const at::Tensor loss = net(x).sum();
                         EXPECT_EQ(whole(), (std::vector<bool>{false, false, true, true}));
                         loss.backward();
                         EXPECT_EQ(whole(), std::vector<bool>(4, false));
                         return net.Step([] {});
                       }),
            absl::OkStatus());
}

TEST(Paged, OutsideOfForwardAndBackwardAnOperatorIsRefused) {
  EXPECT_EQ(OnTwoRanks("gloo",
                       [](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, Paged()));
                         const auto read = [&] { return ErrorOf([&] { net.module()->weight.sum(); }); };
                         const auto refused =
                             HasSubstr("the unit of weight is used outside of forward and backward: use it while");
                         if (group.rank() == 0) EXPECT_THAT(read(), refused);
                         net(at::ones({50})).backward();
                         LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
                         EXPECT_THAT(read(), refused);
                         {
                           const torch::NoGradGuard no_grad;
                           EXPECT_EQ(net(at::ones({50})).item<float>(), 50);
                         }
                         // It is still there, or it is refused; no rank waits for another.
                         return group.Barrier();
                       }),
            absl::OkStatus());
}

class FullParametersTest : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(In, FullParametersTest, testing::AllSettings(), testing::NameOf);

TEST_P(FullParametersTest, WhatIsWrittenIsKeptOnAllRanks) {
  for (const int ranks : {1, 3}) {
    for (const absl::Status& status :
         OnRanks(ranks, GetParam().backend, [&](comm::ProcessGroup& group) -> absl::Status {
           LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, GetParam().options()));
           {
             LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters(Access::kWrite));
             const torch::NoGradGuard no_grad;
             net.module()->weight.copy_(at::arange(50));
             float* const other = net.module()->other.data_ptr<float>();
             other[2] = 7;
             EXPECT_THAT(std::string(net.FullParameters().status().message()), HasSubstr("are open already"));
             EXPECT_THAT(std::string(net.Step([] {}).message()), HasSubstr("FullParameters() are still open"));
           }
           for (size_t i = 0; i < net.shards().size(); ++i) {
             if (net.shard_names()[i] != "weight" || net.shards()[i].numel() != 48) continue;
             EXPECT_TRUE(net.shards()[i].equal(at::arange(48).to(at::kFloat)));
           }
           LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
           EXPECT_TRUE(net.module()->weight.equal(at::arange(50).to(at::kFloat)));
           EXPECT_EQ(net.module()->other[2].item<float>(), 7);
           return group.Barrier();
         })) {
      EXPECT_EQ(status, absl::OkStatus());
    }
  }
}

TEST(Paged, AWriteThatIsLostIsAnError) {
  EXPECT_EQ(OnTwoRanks("gloo",
                       [](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, Paged()));
                         const torch::NoGradGuard no_grad;
                         const auto lost = HasSubstr("other was written to outside of Step(), and the write is lost");
                         {
                           LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
                           net.module()->other.fill_(2);
                         }
                         EXPECT_THAT(ErrorOf([&] { net(at::ones({50})); }), lost);
                         const torch::AutoGradMode grad(true);
                         const at::Tensor loss = net(at::ones({50}));
                         net.module()->other.data().fill_(3);  // not counted by autograd, so not seen
                         net.module()->other.detach().fill_(3);
                         loss.backward();
                         EXPECT_THAT(std::string(net.Step([] {}).message()), lost);
                         return group.Barrier();
                       }),
            absl::OkStatus());
}

TEST(Paged, RanksThatUseUnitsInDifferentOrdersAreToldBoth) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const absl::Status& status : OnRanks(3, backend, [&](comm::ProcessGroup& group) -> absl::Status {
           LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Stack(), &group, Paged({"layers.*"})));
           const std::vector<int> order =
               group.rank() == 1 ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2, 3};
           return TorchStatus("", [&] { net(at::ones({2, 8}), order); });
         })) {
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr("the ranks use units in different orders: rank 0 gathers the unit of layers.1.weight"),
                HasSubstr("rank 1 gathers the unit of layers.2.weight in step 0")));
    }
  }
}

TEST(Paged, ARankThatOpensFullParametersAloneIsNamed) {
  EXPECT_THAT(std::string(OnTwoRanks("gloo",
                                     [](comm::ProcessGroup& group) -> absl::Status {
                                       LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, Paged()));
                                       if (group.rank() == 0) return net.FullParameters().status();
                                       return TorchStatus("", [&] { net(at::ones({50})); });
                                     })
                              .message()),
              HasSubstr("rank 0 opens FullParameters() in step 0, rank 1 gathers the unit of weight in step 0"));
}

TEST(Paged, AViewOfAParameterBeforeWrapIsRefusedOnAllRanks) {
  for (const absl::Status& status : OnRanks(2, "gloo", [](comm::ProcessGroup& group) -> absl::Status {
         Scale scale;
         at::Tensor view;
         if (group.rank() == 1) view = scale->other.narrow(0, 0, 2);
         return Wrap(scale, &group, Paged()).status();
       })) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("on rank 1 another tensor holds the memory of other"));
  }
}

TEST(Paged, AParameterThatOutlivesTheHandleIsRefused) {
  EXPECT_EQ(OnTwoRanks("gloo",
                       [](comm::ProcessGroup& group) -> absl::Status {
                         Scale scale;
                         {
                           LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(scale, &group, Paged()));
                           net(at::ones({50})).backward();
                         }
                         EXPECT_THAT(ErrorOf([&] { scale->weight.sum(); }),
                                     HasSubstr("whose values went with its fsdp::FullyShardedDataParallel"));
                         return group.Barrier();
                       }),
            absl::OkStatus());
}

TEST_P(FullParametersTest, AParameterWhoseDataIsReplacedIsNamed) {
  EXPECT_EQ(OnTwoRanks(GetParam().backend,
                       [](comm::ProcessGroup& group) -> absl::Status {
                         Scale scale;
                         scale->other.set_requires_grad(false);
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(scale, &group, GetParam().options()));
                         const at::Tensor loss = net(at::ones({50})) + scale->other.sum();
                         scale->other.set_data(at::ones({3}));
                         loss.backward();
                         LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
                         EXPECT_THAT(ErrorOf([&] { net(at::ones({50})); }),
                                     HasSubstr("the data of other was replaced after fsdp::Wrap"));
                         return group.Barrier();
                       }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::fsdp
