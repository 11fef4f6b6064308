#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::ExpectClose;
using testing::OnRanks;
using testing::Thrown;
using testing::Wrapped;

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : words(register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).sparse(sparse)))),
        bag(register_module(
            "bag", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(6, 3).mode(torch::kSum).sparse(sparse)))),
        scale(register_parameter("scale", torch::tensor({0.5, 2.0, 3.0}))) {
    const torch::NoGradGuard no_grad;
    to(torch::kDouble);
    words->weight.copy_(torch::arange(18).view({6, 3}).div(20));
    bag->weight.copy_(torch::arange(18).view({6, 3}).div(30));
  }
  // An empty one is not used.
  torch::Tensor forward(const std::vector<int64_t>& word_rows, const std::vector<int64_t>& bag_rows) {
    torch::Tensor sum = scale;
    if (!word_rows.empty()) sum = sum + torch::tanh(words(torch::tensor(word_rows)) * scale).sum(0);
    if (!bag_rows.empty()) sum = sum + torch::tanh(bag(torch::tensor(bag_rows).view({1, -1})).squeeze(0) * scale);
    return sum.pow(2).sum();
  }
  torch::nn::Embedding words;
  torch::nn::EmbeddingBag bag;
  torch::Tensor scale;
};

using Rows = std::vector<int64_t>;

// Rows that overlap between the ranks, and some twice.
Rows RowsOf(int rank, int step) { return {rank, rank + step % 3, 2, 2}; }

std::vector<torch::Tensor> DenseGradients(WordsImpl& net) {
  std::vector<torch::Tensor> dense;
  for (const torch::Tensor& parameter : net.parameters()) {
    const torch::Tensor& gradient = parameter.grad();
    dense.push_back(!gradient.defined() ? torch::Tensor()
                                        : (gradient.is_sparse() ? gradient.to_dense() : gradient.clone()));
  }
  return dense;
}

TEST(SparseGradients, AreAveragedAsDenseOnesWouldBe) {
  for (const int ranks : {2, 3}) {
    for (const bool view : {false, true}) {
      for (const bool find_unused : {false, true}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, view ", view, ", find unused ", find_unused));
        Options options;
        options.gradient_as_bucket_view = view;
        options.find_unused_parameters = find_unused;
        OnRanks(ranks, [&](ProcessGroup& group) {
          auto net = std::make_shared<WordsImpl>(/*sparse=*/true);
          auto ddp = Wrapped(net, group, options);
          WordsImpl reference(/*sparse=*/false);
          torch::optim::SGD optimizer(ddp.parameters(), 0.1), reference_optimizer(reference.parameters(), 0.1);
          for (int step = 0; step < 5; ++step) {
            if (step != 2) {  // accumulates on the gradients of step 1
              optimizer.zero_grad();
              reference_optimizer.zero_grad();
            }
            ddp(RowsOf(group.rank(), step), RowsOf(group.rank(), step + 1)).backward();
            for (int rank = 0; rank < ranks; ++rank)
              reference.forward(RowsOf(rank, step), RowsOf(rank, step + 1)).div(ranks).backward();
            EXPECT_TRUE(net->words->weight.grad().is_sparse());
            EXPECT_TRUE(net->bag->weight.grad().is_sparse());
            ExpectClose(DenseGradients(*net), DenseGradients(reference));
            optimizer.step();
            reference_optimizer.step();
          }
          ExpectClose(net->parameters(), reference.parameters());
        });
      }
    }
  }
}

TEST(SparseGradients, AreTheSameBitsOnEveryRank) {
  std::vector<torch::Tensor> gradients(3);
  OnRanks(3, [&](ProcessGroup& group) {
    auto net = std::make_shared<WordsImpl>(/*sparse=*/true);
    auto ddp = Wrapped(net, group);
    ddp(RowsOf(group.rank(), 0), RowsOf(group.rank(), 1)).backward();
    gradients[group.rank()] = net->words->weight.grad().to_dense();
  });
  EXPECT_TRUE(gradients[1].equal(gradients[0]));
  EXPECT_TRUE(gradients[2].equal(gradients[0]));
}

TEST(SparseGradients, OfAnEmbeddingUnusedOnOneRankOrAll) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool skip : {false, true}) {
      Options options;
      options.find_unused_parameters = true;
      options.skip_all_reduce_unused_params = skip;
      auto net = std::make_shared<WordsImpl>(/*sparse=*/true);
      auto ddp = Wrapped(net, group, options);
      WordsImpl reference(/*sparse=*/false);
      // Only rank 1 uses `words`, nobody `bag`, whose gradient stays undefined.
      ddp(group.rank() == 1 ? Rows{1, 4} : Rows{}, Rows{}).backward();
      reference.forward(Rows{}, Rows{}).div(2).backward();
      reference.forward(Rows{1, 4}, Rows{}).div(2).backward();
      EXPECT_FALSE(net->bag->weight.grad().defined());
      ExpectClose(DenseGradients(*net), DenseGradients(reference));
    }
  });
}

TEST(SparseGradients, AccumulateUnderNoSync) {
  OnRanks(2, [](ProcessGroup& group) {
    auto net = std::make_shared<WordsImpl>(/*sparse=*/true);
    auto ddp = Wrapped(net, group);
    WordsImpl reference(/*sparse=*/false);
    {
      const NoSync no_sync(ddp);
      ddp(RowsOf(group.rank(), 0), RowsOf(group.rank(), 1)).backward();
    }
    ddp(RowsOf(group.rank(), 2), RowsOf(group.rank(), 3)).backward();
    for (int rank = 0; rank < 2; ++rank) {
      reference.forward(RowsOf(rank, 0), RowsOf(rank, 1)).div(2).backward();
      reference.forward(RowsOf(rank, 2), RowsOf(rank, 3)).div(2).backward();
    }
    ExpectClose(DenseGradients(*net), DenseGradients(reference));
  });
}

TEST(SparseGradients, OfAnEmbeddingThatIsTheModule) {
  OnRanks(2, [](ProcessGroup& group) {
    const torch::Tensor rows = torch::tensor({0, group.rank() + 1});
    const torch::Tensor expected = torch::tensor({1.0, 0.5, 0.5, 0.0}).view({4, 1}).expand({4, 2});
    auto words = Wrapped(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)), group);
    words(rows).sum().backward();
    EXPECT_TRUE(words.module()->weight.grad().to_dense().equal(expected));
    auto bag =
        Wrapped(torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(4, 2).mode(torch::kSum).sparse(true)), group);
    bag(rows.view({1, -1})).sum().backward();
    ASSERT_TRUE(bag.module()->weight.grad().is_sparse());
    EXPECT_TRUE(bag.module()->weight.grad().to_dense().equal(expected));
  });
}

TEST(SparseGradients, ADenseOneWhereASparseOneIsExpectedIsNamed) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<WordsImpl>(/*sparse=*/true), group);
    const auto loss = ddp(std::vector<int64_t>{1}, std::vector<int64_t>{2}) + ddp.module()->words->weight.sum();
    EXPECT_EQ(Thrown([&] { loss.backward(); }).message(),
              absl::StrCat("rank ", group.rank(),
                           ": parameter words.weight belongs to an embedding with sparse "
                           "gradients, but its gradient is dense"));
  });
}

// Returns the warning that Wrap() writes for an embedding with max_norm.
std::string Warning(int ranks, bool frozen) {
  ::testing::internal::CaptureStderr();
  OnRanks(ranks, [frozen](ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).max_norm(1)),
                              torch::nn::Linear(3, 1));
    net->parameters()[0].set_requires_grad(!frozen);
    Wrapped(net, group);
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(Embeddings, MaxNormIsSaidToMakeReplicasDiffer) {
  const std::string warning = Warning(2, /*frozen=*/false);
  const size_t first = warning.find("ddp::Wrap: max_norm of the embedding 0.weight makes the ranks' parameters differ");
  EXPECT_NE(first, std::string::npos) << warning;
  EXPECT_EQ(warning.find("max_norm", first + 20), std::string::npos) << "twice: " << warning;
  EXPECT_EQ(Warning(2, /*frozen=*/true), "");
  EXPECT_EQ(Warning(1, /*frozen=*/false), "");
}

}  // namespace
}  // namespace lockstep::ddp
