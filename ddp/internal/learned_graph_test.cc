#include "lockstep/ddp/internal/learned_graph.h"

#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

// Returns the results of a backward's arrivals.
std::vector<bool> Backward(LearnedGraph& graph, const std::vector<int>& arrivals) {
  std::vector<bool> complete;
  graph.BeginBackward();
  for (const int i : arrivals) {
    const absl::StatusOr<bool> arrived = graph.Arrive(i);
    EXPECT_TRUE(arrived.ok()) << arrived.status();
    complete.push_back(arrived.ok() && *arrived);
  }
  return complete;
}

LearnedGraph Learned(const std::vector<int>& arrivals) {
  LearnedGraph graph(2, {"a", "b", "c"});
  for (const bool complete : Backward(graph, arrivals)) EXPECT_FALSE(complete);
  graph.SetKnown();
  graph.EndBackward();
  return graph;
}

TEST(LearnedGraph, CompletesAGradientWithAsManyPartsAsInTheFirstBackward) {
  LearnedGraph graph = Learned({0, 1, 0});
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(Backward(graph, {0, 0, 1}), (std::vector<bool>{false, true, true}));
    graph.EndBackward();
  }
  EXPECT_EQ(graph.Unused(), (std::vector<int>{2}));
}

TEST(LearnedGraph, NamesAParameterThatGetsMoreParts) {
  LearnedGraph graph = Learned({0, 1, 0});
  Backward(graph, {0, 0});
  EXPECT_EQ(graph.Arrive(0).status(),
            absl::FailedPreconditionError(
                "rank 2: parameter a got 3 gradients in this backward and 2 in the first: the graph is not static"));
  EXPECT_EQ(graph.Arrive(2).status(),
            absl::FailedPreconditionError(
                "rank 2: parameter c got 1 gradients in this backward and 0 in the first: the graph is not static"));
}

TEST(LearnedGraph, LearnsAgainAfterAFirstBackwardThatWasGivenUp) {
  LearnedGraph graph(0, {"a", "b"});
  Backward(graph, {0, 0, 1});
  graph.EndBackward();
  EXPECT_FALSE(graph.known());
  Backward(graph, {0});
  graph.SetKnown();
  graph.EndBackward();
  EXPECT_EQ(graph.Unused(), (std::vector<int>{1}));
  EXPECT_EQ(Backward(graph, {0}), (std::vector<bool>{true}));
}

}  // namespace
}  // namespace lockstep::ddp::internal
