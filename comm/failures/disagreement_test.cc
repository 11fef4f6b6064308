// Ranks that call different things at one place: with debug=detail every rank gets an error that shows both.

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/failures/backends.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Process;
using testing::SayStatus;
using ::testing::StartsWith;

using Collective = std::function<absl::Status(ProcessGroup&)>;

class RanksDisagree : public FailureTest {
 protected:
  // After a call that agrees, ranks 0 and 2 make `usual` and rank 1 makes `odd`; the error is to have both texts.
  static void Expect(const Collective& usual, const std::string& usual_text, const Collective& odd,
                     const std::string& odd_text) {
    InitOptions options = Options();
    options.debug = Debug::kDetail;
    Ranks ranks(3, options, [&](const InitOptions& own, const Process::Say& say) {
      const auto group = InitProcessGroup(own).value();
      SayStatus(say, group->AllReduce(at::ones({5})));
      SayStatus(say, (own.rank == 1 ? odd : usual)(*group));
      SayStatus(say, group->Barrier());
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto before = ranks.AwaitStatus(rank), status = ranks.AwaitStatus(rank), later = ranks.AwaitStatus(rank);
      ASSERT_TRUE(before && status && later) << "rank " << rank;
      EXPECT_EQ(before->text, "OK");
      const std::string cause =
          absl::StrCat("call #1 differs: ranks 0, 2 have ", usual_text, "; rank 1 has ", odd_text);
      EXPECT_THAT(status->text,
                  AllOf(StartsWith(absl::StrCat("INVALID_ARGUMENT: rank ", rank, ": ")), HasSubstr(cause)));
      EXPECT_THAT(later->text, HasSubstr(cause));
      EXPECT_EQ(ranks[rank].Wait(), 0);
    }
  }

  static Collective Reduce(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat, ReduceOp op = ReduceOp::kSum) {
    return [shape = shape.vec(), dtype, op](ProcessGroup& group) {
      return group.AllReduce(at::ones(shape, at::TensorOptions(dtype)), op);
    };
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RanksDisagree, ::testing::ValuesIn(BackendsUnderTest()),
                         [](const auto& param) { return param.param; });

TEST_P(RanksDisagree, AboutTheShape) {
  Expect(Reduce({3, 2}), "all_reduce of Float [3, 2] on cpu, op sum", Reduce({3}),
         "all_reduce of Float [3] on cpu, op sum");
}

TEST_P(RanksDisagree, AboutTheDtype) {
  Expect(Reduce({3}), "all_reduce of Float [3] on cpu, op sum", Reduce({3}, at::kDouble),
         "all_reduce of Double [3] on cpu, op sum");
}

TEST_P(RanksDisagree, AboutTheOp) {
  Expect(Reduce({3}), "all_reduce of Float [3] on cpu, op sum", Reduce({3}, at::kFloat, ReduceOp::kMax),
         "all_reduce of Float [3] on cpu, op max");
}

TEST_P(RanksDisagree, AboutTheOrder) {
  Expect(
      Reduce({3}), "all_reduce of Float [3] on cpu, op sum", [](ProcessGroup& group) { return group.Barrier(); },
      "barrier");
}

TEST_P(RanksDisagree, AboutTheRoot) {
  const auto broadcast = [](int root) {
    return [root](ProcessGroup& group) { return group.Broadcast(at::ones({3}), root); };
  };
  Expect(broadcast(0), "broadcast of Float [3] on cpu, root 0", broadcast(2), "broadcast of Float [3] on cpu, root 2");
}

}  // namespace
}  // namespace lockstep::comm
