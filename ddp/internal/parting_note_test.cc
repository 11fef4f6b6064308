#include "lockstep/ddp/internal/parting_note.h"

#include <torch/torch.h>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp::internal {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

TEST(PartingNote, ExplainsTheErrorsOfAGroupThatFailed) {
  const absl::Status left = absl::UnavailableError("rank 0 left");
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         PartingNote note(&group);
                         if (group.rank() == 0) {
                           EXPECT_EQ(note.Leave("rank 0: no gradient"), absl::OkStatus());
                         }
                         EXPECT_EQ(group.Barrier(), absl::OkStatus());
                         EXPECT_EQ(note.Explain(left),
                                   absl::UnavailableError("rank 0 left; before that, rank 0: no gradient"));
                         EXPECT_EQ(note.Explain(absl::OkStatus()), absl::OkStatus());
                         const absl::Status other = absl::InvalidArgumentError("a wrong shape");
                         EXPECT_EQ(note.Explain(other), other);
                         EXPECT_EQ(group.Barrier(), absl::OkStatus());
                       }),
            absl::OkStatus());
}

TEST(PartingNote, AddsNothingIfNobodyLeftOne) {
  const absl::Status left = absl::UnavailableError("rank 0 left");
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const PartingNote note(&group);
                         EXPECT_EQ(note.Explain(left), left);
                         EXPECT_EQ(group.Barrier(), absl::OkStatus());
                       }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp::internal
