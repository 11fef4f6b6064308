#include "lockstep/ddp/internal/forward.h"

#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {

// A result of a user's own type.
struct Scored {
  torch::Tensor scores;
  std::string note;
  torch::Tensor aside;
};

template <typename F>
Scored MapTensors(const Scored& scored, F&& f) {
  return {f(scored.scores), scored.note, f(scored.aside)};
}

namespace {

using comm::ProcessGroup;
using testing::OnRanks;
using testing::Wrapped;

// forward(args...) is f(weight, args...).
template <typename F>
struct CallingImpl : torch::nn::Module {
  explicit CallingImpl(F f) : f(std::move(f)), weight(register_parameter("weight", torch::ones({2}))) {}
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    return f(weight, std::forward<Args>(args)...);
  }
  F f;
  torch::Tensor weight;
};

// All that changes what goes in or comes out.
std::vector<Options> EveryWay() {
  std::vector<Options> ways(4);
  ways[1].find_unused_parameters = true;
  ways[2].static_graph = true;
  ways[3].mixed_precision = MixedPrecision{torch::kBFloat16, std::nullopt, std::nullopt};
  ways[3].static_graph = true;
  return ways;
}

// Wraps f in every way and calls check(ddp) twice; after each the gradient must be that of sum(rank * weight), once.
template <typename F, typename Check>
void ExpectForwards(const F& f, const Check& check) {
  OnRanks(2, [&](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(std::make_shared<CallingImpl<F>>(f), group, options);
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        check(ddp, torch::full({2}, group.rank() + 1.0f));
        ASSERT_TRUE(ddp.module()->weight.grad().defined());
        EXPECT_TRUE(ddp.module()->weight.grad().equal(torch::full({2}, 1.5f)));
      }
    }
  });
}

TEST(Forward, OfATensor) {
  ExpectForwards([](const torch::Tensor& weight, const torch::Tensor& x) { return weight * x; },
                 [](auto& ddp, const torch::Tensor& x) {
                   static_assert(std::is_same_v<decltype(ddp(x)), torch::Tensor>);
                   ddp(x).sum().backward();
                 });
}

TEST(Forward, OfNothing) {
  ExpectForwards([](const torch::Tensor& weight, const torch::Tensor& x) { (weight * x).sum().backward(); },
                 [](auto& ddp, const torch::Tensor& x) {
                   static_assert(std::is_void_v<decltype(ddp(x))>);
                   ddp(x);
                 });
}

// Not looked into.
struct Kept {
  torch::Tensor tensor;
};

TEST(Forward, OfAReference) {
  ExpectForwards(
      [](const torch::Tensor& weight, const torch::Tensor& x, Kept& kept) -> torch::Tensor& {
        kept.tensor = weight * x;
        return kept.tensor;
      },
      [](auto& ddp, const torch::Tensor& x) {
        Kept kept;
        static_assert(std::is_same_v<decltype(ddp(x, kept)), torch::Tensor&>);
        torch::Tensor& result = ddp(x, kept);
        EXPECT_EQ(&result, &kept.tensor);
        result.sum().backward();
      });
}

TEST(Forward, OfWhatCanOnlyBeMoved) {
  ExpectForwards(
      [](const torch::Tensor& weight, const torch::Tensor& x, std::unique_ptr<int> extra) {
        (weight * x).sum().backward();
        return std::make_unique<int>(*extra + 1);
      },
      [](auto& ddp, const torch::Tensor& x) { EXPECT_EQ(*ddp(x, std::make_unique<int>(4)), 5); });
}

TEST(Forward, OfATupleWithStringsAndNestedTensors) {
  using Result = std::tuple<torch::Tensor, std::string, std::vector<torch::Tensor>>;
  ExpectForwards(
      [](const torch::Tensor& weight, const torch::Tensor& x, const char* name) -> Result {
        return {weight * x / 2, absl::StrCat(name, "!"), {weight * x / 2, x}};
      },
      [](auto& ddp, const torch::Tensor& x) {
        static_assert(std::is_same_v<decltype(ddp(x, "a")), Result>);
        const auto [half, name, rest] = ddp(x, "a");
        EXPECT_EQ(name, "a!");
        EXPECT_FALSE(rest[1].requires_grad());
        (half + rest[0]).sum().backward();
      });
}

TEST(Forward, OfATypeOfOnesOwn) {
  ExpectForwards(
      [](const torch::Tensor& weight, const Scored& in) {
        return Scored{weight * in.scores, in.note + "?", torch::Tensor()};
      },
      [](auto& ddp, const torch::Tensor& x) {
        const Scored out = ddp(Scored{x, "note", {}});
        EXPECT_EQ(out.note, "note?");
        EXPECT_FALSE(out.aside.defined());
        out.scores.sum().backward();
      });
}

TEST(Forward, OfOptionalsAndMaps) {
  ExpectForwards(
      [](const torch::Tensor& weight, const std::map<std::string, torch::Tensor>& in, std::optional<torch::Tensor> no) {
        EXPECT_FALSE(no);
        return std::map<std::string, torch::Tensor>{{"y", weight * in.at("x")}};
      },
      [](auto& ddp, const torch::Tensor& x) {
        ddp(std::map<std::string, torch::Tensor>{{"x", x}}, std::optional<torch::Tensor>()).at("y").sum().backward();
      });
}

TEST(Forward, WhatIsPassedByReferenceMayBeWrittenTo) {
  ExpectForwards(
      [](const torch::Tensor& weight, const torch::Tensor& x, int& calls) {
        ++calls;
        return weight * x;
      },
      [](auto& ddp, const torch::Tensor& x) {
        int calls = 0;
        ddp(x, calls).sum().backward();
        EXPECT_EQ(calls, 1);
      });
}

TEST(Forward, OutputsKeepTheirNodes) {
  OnRanks(1, [](ProcessGroup& group) {
    const auto f = [](const torch::Tensor& weight, const torch::Tensor& x) { return weight * x; };
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(std::make_shared<CallingImpl<decltype(f)>>(f), group, options);
      EXPECT_EQ(ddp(torch::ones({2})).grad_fn()->name(), "MulBackward0");
    }
  });
}

}  // namespace
}  // namespace lockstep::ddp
