#include "lockstep/elastic/internal/healing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::elastic::internal {
namespace {

using checkpoint::Value;
using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A large tensor of more than one piece, a large one of less, and a small one, which is in the frame.
struct Thing {
  explicit Thing(float value)
      : tensors({at::full({3, 500000}, value), at::full({20000}, value), at::full({3}, value)}) {}

  void Keep(KeptState* kept, bool shares_memory) {
    KeptThing thing;
    thing.shares_memory = shares_memory;
    thing.save = [this]() -> absl::StatusOr<Value> {
      return Value::Dict({{"weights", Value::List({tensors[0], tensors[1]})}, {"bias", tensors[2]}, {"name", "x"}});
    };
    thing.load = [this](const Value& value) -> absl::Status {
      const Value& weights = *value.Find("weights");
      for (int i = 0; i < 2; ++i) tensors[i].copy_(weights.items()[i].tensor());
      tensors[2].copy_(value.Find("bias")->tensor());
      return absl::OkStatus();
    };
    ASSERT_EQ(kept->Add("thing", thing), absl::OkStatus());
  }

  bool Is(float value) const {
    return tensors[0].eq(value).all().item<bool>() && tensors[1].eq(value).all().item<bool>() &&
           tensors[2].eq(value).all().item<bool>();
  }

  std::vector<at::Tensor> tensors;
};

// Ranks with the newest state have 7, others 1. Everybody has 7 in the end.
void ExpectHealed(int ranks, std::vector<int> behind, bool in_place, bool shares_memory) {
  SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", behind.size(), " behind, in place ", in_place));
  EXPECT_EQ(RunRanksOk(ranks,
                       [&](ProcessGroup& group) {
                         const bool is_behind = std::count(behind.begin(), behind.end(), group.rank()) > 0;
                         Thing thing(is_behind ? 1 : 7);
                         const void* const memory = thing.tensors[0].const_data_ptr();
                         KeptState kept;
                         thing.Keep(&kept, shares_memory);
                         const auto healing = AgreeOnHealing(group, {is_behind ? 4 : 5}, kept);
                         ASSERT_EQ(healing.status(), absl::OkStatus());
                         EXPECT_EQ(healing->receivers, behind);
                         EXPECT_EQ(healing->newest, 5);
                         EXPECT_EQ(Heal(group, *healing, in_place, &kept), absl::OkStatus());
                         EXPECT_TRUE(thing.Is(7));
                         EXPECT_EQ(thing.tensors[0].const_data_ptr(), memory);
                       }),
            absl::OkStatus());
}

TEST(Heal, GivesEveryRankTheNewestState) {
  for (const bool in_place : {false, true}) {
    for (const bool shares_memory : {false, true}) {
      ExpectHealed(2, {1}, in_place, shares_memory);
      ExpectHealed(4, {0}, in_place, shares_memory);        // three ranks send
      ExpectHealed(4, {0, 1, 3}, in_place, shares_memory);  // one broadcasts
      ExpectHealed(5, {1, 2, 4}, in_place, shares_memory);  // two broadcast
    }
  }
}

TEST(AgreeOnHealing, TakesTheFirstRanksStateAtTheStart) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         Thing thing(group.rank() == 1 ? 1 : 7);
                         KeptState kept;
                         thing.Keep(&kept, true);
                         const auto healing = AgreeOnHealing(group, {group.rank() == 0 ? kNoState : 0}, kept);
                         ASSERT_EQ(healing.status(), absl::OkStatus());
                         EXPECT_THAT(healing->sources, ElementsAre(1));
                         EXPECT_THAT(healing->receivers, ElementsAre(0, 2));
                         thing.tensors[1].fill_(7);
                         const auto again = AgreeOnHealing(group, {0}, kept);
                         ASSERT_EQ(again.status(), absl::OkStatus());
                         EXPECT_THAT(again->sources, ElementsAre(0));
                         EXPECT_THAT(again->receivers, ElementsAre(1));
                       }),
            absl::OkStatus());
}

TEST(AgreeOnHealing, NamesWhatTheRanksKeepAndSaysThatTheStateIsLost) {
  for (const absl::Status& status : RunRanks(2, [](ProcessGroup& group) {
         Thing thing(1);
         KeptState kept;
         thing.Keep(&kept, true);
         EXPECT_EQ(AgreeOnHealing(group, {kNoState}, kept).status().code(), absl::StatusCode::kDataLoss);
         Thing other(1);
         if (group.rank() == 1) EXPECT_EQ(kept.Add("more", {}), absl::OkStatus());
         return AgreeOnHealing(group, {0}, kept).status();
       })) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the ranks keep different things: rank 0 keeps \"thing\"; rank 1 keeps \"thing\", \"more\""));
  }
}

TEST(AgreeOnHealing, SaysThatANewRankKeepsOtherThingsToItAlone) {
  const auto statuses = RunRanks(3, [](ProcessGroup& group) {
    Thing thing(1);
    KeptState kept;
    thing.Keep(&kept, true);
    if (group.rank() == 0) EXPECT_EQ(kept.Add("more", {}), absl::OkStatus());
    return AgreeOnHealing(group, {group.rank() == 0 ? 0 : 3}, kept).status();
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(IsUnfit(statuses[rank]), rank == 0);
    EXPECT_EQ(IsWithUnfit(statuses[rank]), rank != 0);
    EXPECT_EQ(statuses[rank].code(), rank == 0 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(statuses[rank].message()),
                HasSubstr("rank 0 keeps other things than rank 1, which has the state: rank 1 keeps \"thing\"; rank 0 "
                          "keeps \"thing\", \"more\""));
  }
}

TEST(CheckSameLayout, NamesATensorThatDoesNotFit) {
  const std::vector<NamedTensor> ours = {{"a", at::zeros({2})}, {"b", at::zeros({3, 4})}};
  EXPECT_EQ(CheckSameLayout(ours, ours), absl::OkStatus());
  EXPECT_EQ(CheckSameLayout(ours, {ours[0], {"b", at::zeros({3, 4}, at::kLong)}}).message(),
            "this rank keeps b of Float [3, 4], where the rank that has the state keeps b of Long [3, 4]");
  EXPECT_EQ(CheckSameLayout({ours[0]}, ours).message(),
            "this rank keeps nothing, where the rank that has the state keeps b of Float [3, 4]");
}

// Rank 0 sends bytes, and the hash of other ones.
TEST(TransferTensors, FindsBytesThatChangedOnTheWay) {
  const auto statuses = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    const std::vector<NamedTensor> tensors = {{"net: first.weight", at::ones({100})}};
    if (group.rank() == 1) return TransferTensors(group, {{0}, {1}, 5}, tensors);
    absl::Status status = group.Send(at::ones({400}, at::kByte), 1);
    status.Update(group.Send(at::ones({1}, at::kLong), 1));
    status.Update(group.Recv(at::ones({1}), 1).status());  // it fails when rank 1 has ended
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(statuses[1].message()),
              HasSubstr("rank 1: bytes 0 to 400 of net: first.weight changed on the way from rank 0: expected the hash "
                        "0000000000000001, found "));
}

}  // namespace
}  // namespace lockstep::elastic::internal
