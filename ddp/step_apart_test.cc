// A rank that runs another number of passes than the others is found at the next collective of another kind.

#include <torch/torch.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::SeededMlp;
using testing::Wrapped;

// Two steps on each rank, with a third one on rank 1, and a barrier, with the default timeout of half an hour.
std::vector<absl::Status> TrainAStepApart(const std::string& backend) {
  comm::InitOptions init;
  init.backend = backend;
  return comm::testing::InitRanks(init, 3, [](ProcessGroup& group) {
    absl::Status met;
    const absl::Status trained = TorchStatus("", [&] {
      auto ddp = Wrapped(SeededMlp(1), group);
      for (int step = 0; step < 2 + (group.rank() == 1 ? 1 : 0); ++step) ddp(Batch(2, 4, step)).sum().backward();
      met = group.Barrier();
    });
    return trained.ok() ? met : trained;
  });
}

TEST(StepApart, IsFoundWithinTenSeconds) {
  for (const char* backend : {"gloo", "shm"}) {
    const absl::Time start = absl::Now();
    const std::vector<absl::Status> results = TrainAStepApart(backend);
    EXPECT_LT(absl::Now() - start, absl::Seconds(11)) << backend;
    for (const absl::Status& status : results) {
      EXPECT_FALSE(status.ok()) << backend;
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("barrier"));
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("all_reduce"));
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1 "));
    }
  }
}

// If it took a number, this rank's calls would have other numbers than the others' from then on.
TEST(StepApart, ARefusedCallTakesNoNumber) {
  comm::InitOptions init;
  init.backend = "gloo";
  init.debug = comm::Debug::kDetail;  // compares the calls of each number
  const auto body = [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) {
      EXPECT_EQ(group.AllReduce(torch::ones({4, 4}).slice(1, 0, 3)).code(), absl::StatusCode::kInvalidArgument);
    }
    return group.AllReduce(torch::ones({2}));
  };
  for (const absl::Status& status : comm::testing::InitRanks(init, 2, body)) EXPECT_EQ(status, absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
