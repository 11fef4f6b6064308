#include "lockstep/elastic/internal/shards.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/elastic/internal/kept_model.h"
#include "lockstep/fsdp/internal/kept_shards.h"

namespace lockstep::elastic::internal {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using ::testing::HasSubstr;

// An optimizer that has made two steps, and so has a state, the same on all ranks. Some tensors are large, and some are
// in the frame of a healing.
struct Training {
  explicit Training(int64_t first_rows = 30000) {
    for (int i = 0; i < 7; ++i) {
      const int64_t rows = i == 0 ? first_rows : i % 2 == 0 ? 30000 : 3;
      parameters.push_back(at::full({rows, 2}, static_cast<float>(i)).requires_grad_());
    }
    optimizer = std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach().sin().add(step);
      optimizer->step();
    }
    shards.Add("optimizer", optimizer.get(), &shard);
    shards.HaveAll();
  }

  std::string State() const { return *checkpoint::Serialize(*checkpoint::OptimizerStateDict(*optimizer)); }

  std::vector<at::Tensor> parameters;
  std::unique_ptr<torch::optim::Adam> optimizer;
  Shard shard;
  Shards shards;
};

void ExpectOk(int ranks, const std::function<absl::Status(ProcessGroup& group)>& body) {
  for (const absl::Status& status : RunRanks(ranks, body)) EXPECT_EQ(status, absl::OkStatus());
}

TEST(Shards, GivesTwoRanksEachState) {
  for (const int ranks : {1, 2, 3, 5}) {
    ExpectOk(ranks, [](ProcessGroup& group) -> absl::Status {
      Training training;
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      const auto number = static_cast<int64_t>(training.optimizer->state().size());
      EXPECT_EQ(number, std::count(training.shard.keeps.begin(), training.shard.keeps.end(), true));
      const at::Tensor sum = at::full({1}, number, at::kLong);
      LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(sum));
      EXPECT_EQ(sum.item<int64_t>(), 7 * std::min(group.size(), 2));
      return absl::OkStatus();
    });
  }
}

TEST(Shards, GivesARankThatHasNoneTheStatesOfTheOthers) {
  for (const int ranks : {2, 3, 5}) {
    ExpectOk(ranks, [](ProcessGroup& group) -> absl::Status {
      Training training;
      const std::string whole = training.State();
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      for (int newcomer = 0; newcomer < group.size(); ++newcomer) {
        if (group.rank() == newcomer) training.shards.HaveNone();
        training.shards.DropOthers();
        LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      }
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Gather(group, 1, /*with_states=*/true));
      EXPECT_EQ(training.State() == whole, group.rank() == 1 || group.size() == 2);
      return absl::OkStatus();
    });
  }
}

// Ranks that have passed the barrier at its end have dropped what this rank has received.
TEST(Shards, ARankHasWhatItHasReceivedIfItsBarrierFails) {
  const auto statuses = RunRanks(4, [](ProcessGroup& group) -> absl::Status {
    Training training;
    Shards of_other_optimizer;
    Shard shard;
    torch::optim::SGD sgd(training.parameters, torch::optim::SGDOptions(0.1));
    of_other_optimizer.Add("optimizer", &sgd, &shard);
    of_other_optimizer.HaveNone();
    if (group.rank() >= 2) training.shards.HaveNone();
    training.shards.DropOthers();
    // Rank 3 cannot load what it receives, so it leaves before the barrier.
    Shards& shards = group.rank() == 3 ? of_other_optimizer : training.shards;
    const absl::Status divided = shards.Divide(group, std::vector<int>(group.size()));
    group.Abort(divided);
    const auto has = std::count(training.shard.keeps.begin(), training.shard.keeps.end(), true);
    EXPECT_EQ(has, static_cast<int64_t>(training.optimizer->state().size()));
    if (group.rank() < 2) EXPECT_EQ(has, 7);
    if (group.rank() == 2) EXPECT_GT(has, 0);
    return divided;
  });
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
}

TEST(Shards, SaysWhichStateIsLost) {
  for (const absl::Status& status : RunRanks(3, [](ProcessGroup& group) -> absl::Status {
         Training training;
         LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
         if (group.rank() != 1) training.shards.HaveNone();
         LOCKSTEP_RETURN_IF_ERROR(training.shards.lost());
         EXPECT_EQ(training.shards.Divide(group, std::vector<int>(group.size())), absl::OkStatus());
         return training.shards.lost();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("both ranks that had a part of it have left: of optimizer: "));
  }
}

// Each rank has stepped what it keeps. A parameter may be more than two equal shares.
TEST(Shards, GivesAllRanksTheParametersOfTheOwners) {
  for (const auto& [ranks, first_rows, after_a_failure] :
       {std::tuple(3, 30000, false), {3, 30000, true}, {5, 600000, false}, {2, 600000, false}}) {
    ExpectOk(ranks, [first_rows = first_rows, after_a_failure = after_a_failure](ProcessGroup& group) -> absl::Status {
      Training training(first_rows);
      const auto expected = [&](size_t p) {
        const at::Tensor& parameter = training.parameters[p];
        return at::arange(parameter.numel(), at::kFloat).add(static_cast<float>(p)).view(parameter.sizes());
      };
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      for (size_t p = 0; p < training.parameters.size(); ++p) {
        const at::Tensor values = training.parameters[p].detach();
        training.shard.keeps[p] ? values.copy_(expected(p)) : values.fill_(-1);
      }
      if (after_a_failure) {
        LOCKSTEP_RETURN_IF_ERROR(training.shards.SpreadParameters(group, false, /*has_none=*/group.rank() == 2));
      } else {
        LOCKSTEP_RETURN_IF_ERROR(training.shards.ShareParameters(group));
      }
      for (size_t p = 0; p < training.parameters.size(); ++p) {
        EXPECT_TRUE(training.parameters[p].equal(expected(p))) << p;
      }
      return absl::OkStatus();
    });
  }
}

// A model of 5 pieces and an optimizer of them, which has made two steps.
struct ModelTraining {
  ModelTraining() {
    for (at::Tensor& parameter : net->parameters())
      parameter.detach().copy_(at::arange(parameter.numel()).sin().view(parameter.sizes()));
    model = *KeptModel::Create(*net, /*piece_elements=*/4096);
    optimizer = std::make_unique<torch::optim::Adam>(model->pieces(), torch::optim::AdamOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      for (const at::Tensor& piece : model->pieces()) piece.mutable_grad() = piece.detach().sin().add(step);
      optimizer->step();
    }
    shards.AddModel("net", model.get());
    shards.Add("optimizer", optimizer.get(), &shard);
    shards.HaveAll();
  }

  std::string States() const { return *checkpoint::Serialize(*checkpoint::OptimizerStateDict(*optimizer)); }
  std::string Parameters() const { return *checkpoint::Serialize(model->Save(/*has_all=*/true)); }

  torch::nn::Linear net{100, 150};
  std::unique_ptr<KeptModel> model;
  std::unique_ptr<torch::optim::Adam> optimizer;
  Shard shard;
  Shards shards;
};

TEST(Shards, MovesThePiecesOfAModelWithTheirStates) {
  for (const int ranks : {1, 2, 3, 5}) {
    ExpectOk(ranks, [](ProcessGroup& group) -> absl::Status {
      ModelTraining training;
      LOCKSTEP_RETURN_IF_ERROR(training.shards.CheckModels());
      const std::string states = training.States(), parameters = training.Parameters();
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      for (const fsdp::internal::KeptShard& piece : training.model->shards()->shards) {
        const bool keeps = group.rank() == piece.owner || group.rank() == piece.second;
        EXPECT_EQ(piece.tensor.numel(), keeps ? piece.end - piece.begin : 0);
        EXPECT_EQ(piece.tensor.storage().nbytes(), piece.tensor.nbytes());
        EXPECT_EQ(piece.owner == piece.second, group.size() == 1);
      }
      for (at::Tensor& parameter : training.net->parameters()) parameter.detach().zero_();  // as a rank that died may
      for (int newcomer = 0; newcomer < group.size() && group.size() > 1; ++newcomer) {
        if (group.rank() == newcomer) training.shards.HaveNone();
        LOCKSTEP_RETURN_IF_ERROR(training.shards.SpreadParameters(group, false, group.rank() == newcomer));
        training.shards.DropOthers();
        LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
      }
      const std::string own = training.States();
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Gather(group, 0, /*with_states=*/false));
      EXPECT_TRUE(training.States() == own);
      EXPECT_TRUE(training.Parameters() == parameters || group.rank() != 0);
      training.shards.DropOthers();
      for (at::Tensor& parameter : training.net->parameters()) parameter.detach().zero_();
      LOCKSTEP_RETURN_IF_ERROR(training.shards.Gather(group, 0, /*with_states=*/true));
      if (group.rank() != 0) return absl::OkStatus();
      EXPECT_TRUE(training.States() == states);
      EXPECT_TRUE(training.Parameters() == parameters);
      return absl::OkStatus();
    });
  }
}

TEST(Shards, SaysWhichPieceOfAModelIsLost) {
  for (const absl::Status& status : RunRanks(3, [](ProcessGroup& group) -> absl::Status {
         ModelTraining training;
         LOCKSTEP_RETURN_IF_ERROR(training.shards.Divide(group, std::vector<int>(group.size())));
         if (group.rank() != 1) training.shards.HaveNone();
         return training.shards.SpreadParameters(group, /*has_all=*/group.rank() == 1, group.rank() != 1);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a part of the model is lost, since both ranks that had a part "
                          "of it have left: of net: elements "));
  }
}

TEST(Shards, EachPieceOfAModelIsInOneOptimizer) {
  ModelTraining training;
  Shards none, two;
  none.AddModel("net", training.model.get());
  EXPECT_EQ(none.CheckModels().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.CheckModels().message()),
              HasSubstr("\"net\" are in 0 sharded optimizers that are kept, expected 1"));
  two.AddModel("net", training.model.get());
  two.Add("first", training.optimizer.get(), &training.shard);
  two.Add("second", training.optimizer.get(), &training.shard);
  EXPECT_THAT(std::string(two.CheckModels().message()), HasSubstr("\"net\" are in 2 sharded optimizers"));
  EXPECT_THAT(std::string(two.PrepareModels().message()), HasSubstr("\"net\" is not wrapped"));
}

TEST(KeptModel, RefusesTheStateOfAnotherModel) {
  const auto state = [](int64_t in, int64_t elements) {
    torch::nn::Linear net(in, 150);
    return (*KeptModel::Create(*net, elements))->Save(/*has_all=*/false);
  };
  torch::nn::Linear net(100, 150);
  const auto model = *KeptModel::Create(*net, 4096);
  EXPECT_EQ(model->Load(state(100, 4096)), absl::OkStatus());
  EXPECT_EQ(model->Load(state(101, 4096)).message(), "weight: expected Float [150, 100], found Float [150, 101]");
  EXPECT_THAT(std::string(model->Load(state(100, 1024)).message()), HasSubstr("into other pieces"));
  EXPECT_THAT(std::string(KeptModel::Create(*net, 100).status().message()), HasSubstr("expected a multiple of 16"));
  for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
  EXPECT_THAT(std::string(KeptModel::Create(*net, 4096).status().message()), HasSubstr("no parameter requires"));
}

}  // namespace
}  // namespace lockstep::elastic::internal
