// Every rank's error in forward or backward when another dies, stops, leaves, throws or errs within a step, and the
// time until the error. The ranks are processes, over each backend that comm/failures tests.

#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/failures/backends.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {
namespace {

using comm::InitOptions;
using comm::ProcessGroup;
using comm::Ranks;
using comm::testing::Process;
using comm::testing::SayStatus;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr int kLayers = 3, kFailingStep = 3, kRanks = 3;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int width) {
    for (int i = 0; i < kLayers; ++i)
      weights.push_back(register_parameter(absl::StrCat("weight", i), at::eye(width) / width));
    register_buffer("calls", at::zeros({1}));
  }

  at::Tensor forward(at::Tensor x, const std::function<void()>& in_forward, const std::function<void()>& in_backward) {
    for (int i = first_layer; i < kLayers; ++i) {
      x = at::tanh(at::linear(x, weights[i]));
      if (i != 1) continue;
      in_forward();
      x.register_hook([in_backward](const at::Tensor& gradient) {
        in_backward();
        return gradient;
      });
    }
    return x.sum();
  }

  std::vector<at::Tensor> weights;
  int first_layer = 0;
};
TORCH_MODULE(Net);

// A rank's fault within the step that fails; elsewhere nothing happens.
struct Fault {
  std::function<void()> in_forward = [] {};
  std::function<void()> in_backward = [] {};
};

// A rank's training: each weight has a bucket of its own.
class Trainer {
 public:
  explicit Trainer(const InitOptions& options, int width = 256)
      : group_(comm::InitProcessGroup(options).value()), ddp_(Wrap(Net(width), group_.get(), SmallBuckets()).value()) {}

  // Throws what forward and backward throw.
  void Step(const Fault& fault = {}) { Forward(fault).backward(); }
  at::Tensor Forward(const Fault& fault = {}) {
    return ddp_(at::ones({2, ddp_.module()->weights[0].size(0)}), fault.in_forward, fault.in_backward);
  }

  // The error of the first step, of this number or higher, that fails.
  absl::Status StepUntilItFails() {
    const absl::Time end = absl::Now() + absl::Seconds(25);
    absl::Status status;
    while (status.ok() && absl::Now() < end) status = TorchStatus("", [&] { Step(); });
    return status;
  }

  Net& net() { return ddp_.module(); }
  ProcessGroup& group() { return *group_; }

 private:
  static Options SmallBuckets() {
    Options options;
    options.bucket_cap_mb = 0.1;
    return options;
  }

  std::unique_ptr<ProcessGroup> group_;
  DistributedDataParallel<Net> ddp_;
};

// A rank's life: `victim` steps with `fault` in one step; the others go on until that fails, and try once more.
int Train(const InitOptions& options, const Process::Say& say, int victim, const Fault& fault) {
  Trainer trainer(options);
  if (options.rank == victim) {
    for (int step = 0; step < kFailingStep; ++step) trainer.Step();
    trainer.Step(fault);
    return 0;
  }
  SayStatus(say, trainer.StepUntilItFails());
  SayStatus(say, TorchStatus("", [&] { trainer.Step(); }));
  return 0;
}

class TrainingRanksFail : public comm::FailureTest {
 protected:
  // Each survivor's error, and the one of its next forward.
  static void ExpectCause(Ranks& ranks, int victim, const std::string& code, const std::string& cause,
                          absl::Duration since, absl::Duration within) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      const auto status = ranks.AwaitStatus(rank), again = ranks.AwaitStatus(rank);
      ASSERT_TRUE(status && again) << "rank " << rank;
      EXPECT_THAT(status->text, AllOf(StartsWith(code + ": "), HasSubstr(cause))) << "rank " << rank;
      EXPECT_LT(status->time - since, within) << "rank " << rank;
      EXPECT_THAT(again->text, AllOf(StartsWith(code + ": "), HasSubstr(cause))) << "rank " << rank;
      EXPECT_LT(again->time - status->time, absl::Milliseconds(500)) << "rank " << rank;
      EXPECT_EQ(ranks[rank].Wait(), 0) << "rank " << rank;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, TrainingRanksFail, ::testing::ValuesIn(comm::BackendsUnderTest()),
                         [](const auto& param) { return param.param; });

// Ranks of which `victim` waits within a backward for what the test does to it.
Ranks WaitingInBackward(const InitOptions& options, int victim) {
  return Ranks(kRanks, options, [victim](const InitOptions& own, const Process::Say& say) {
    Fault fault;
    fault.in_backward = [&] {
      say("in backward");
      pause();
    };
    return Train(own, say, victim, fault);
  });
}

TEST_P(TrainingRanksFail, ARankKilledInBackwardIsNamedByTheOthersBackward) {
  for (const int victim : {0, kRanks - 1}) {
    Ranks ranks = WaitingInBackward(Options(), victim);
    ASSERT_TRUE(ranks[victim].AwaitLine("in backward"));
    const absl::Duration killed = ranks.Signal(victim, SIGKILL);
    ExpectCause(ranks, victim, "UNAVAILABLE", ranks.name(victim) + " died: signal 9 (Killed)", killed,
                absl::Seconds(2));
  }
}

// Rank 0, which orders what the watch hears and serves the store where there is one.
TEST_P(TrainingRanksFail, ARankStoppedInBackwardIsNamedOnceTimeIsUp) {
  const absl::Duration timeout = absl::Seconds(2);
  Ranks ranks = WaitingInBackward(Options(timeout), /*victim=*/0);
  ASSERT_TRUE(ranks[0].AwaitLine("in backward"));
  const absl::Duration stopped = ranks.Signal(0, SIGSTOP);
  ExpectCause(ranks, 0, "DEADLINE_EXCEEDED", ranks.name(0) + " is stopped", stopped, timeout + absl::Seconds(2));
}

// The errors of the others when rank 1 does `fault`.
struct Case {
  const char* what;
  Fault fault;
  const char* code;
  const char* cause;
};

std::vector<Case> Cases() {
  const auto throws = [] { throw std::runtime_error("the disk is full"); };
  const auto exits = [] { _exit(3); };
  std::vector<Case> cases = {
      {"throws in forward", {}, "ABORTED", " failed: uncaught exception: the disk is full"},
      {"throws in backward", {}, "ABORTED", " failed: uncaught exception: the disk is full"},
      {"exits in forward", {}, "UNAVAILABLE", " exited with code 3"},
      {"exits in backward", {}, "UNAVAILABLE", " exited with code 3"},
      {"returns after its step", {}, "UNAVAILABLE", " left the group after all_reduce #"},
  };
  cases[0].fault.in_forward = throws;
  cases[1].fault.in_backward = throws;
  cases[2].fault.in_forward = exits;
  cases[3].fault.in_backward = exits;
  return cases;
}

TEST_P(TrainingRanksFail, ARankThatThrowsOrEndsWithinAStepIsNamedWithItsReason) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.what);
    const absl::Duration begun = Process::Now();
    Ranks ranks(kRanks, Options(), [&](const InitOptions& own, const Process::Say& say) {
      return Train(own, say, /*victim=*/1, each.fault);
    });
    ExpectCause(ranks, 1, each.code, ranks.name(1) + each.cause, begun, absl::Seconds(12));
  }
}

TEST_P(TrainingRanksFail, AnExceptionFromBackwardThroughTheGroupsScopeReachesTheOthers) {
  const absl::Duration begun = Process::Now();
  Ranks ranks(kRanks, Options(), [](const InitOptions& own, const Process::Say& say) {
    Fault fault;
    fault.in_backward = [] { throw std::out_of_range("no such sample"); };
    try {
      return Train(own, say, /*victim=*/1, fault);
    } catch (const std::out_of_range&) {
      pause();  // the process goes on: its death tells nobody
      return 0;
    }
  });
  ExpectCause(ranks, 1, "ABORTED", ranks.name(1) + " failed: left by an exception", begun, absl::Seconds(12));
}

TEST_P(TrainingRanksFail, ARankThatWrapsAnotherModelIsNamedOnAllRanks) {
  Ranks ranks(kRanks, Options(), [](const InitOptions& own, const Process::Say& say) {
    const auto group = comm::InitProcessGroup(own).value();
    SayStatus(say, Wrap(Net(own.rank == 1 ? 5 : 4), group.get()).status());
    // And the group goes on.
    SayStatus(say, Wrap(Net(4), group.get()).status());
    return 0;
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto status = ranks.AwaitStatus(rank), later = ranks.AwaitStatus(rank);
    ASSERT_TRUE(status && later) << "rank " << rank;
    EXPECT_EQ(status->text,
              absl::StrCat("INVALID_ARGUMENT: rank ", rank,
                           ": ddp::Wrap: the ranks' models differ at parameter 0: rank 0 has weight0 Float [4, 4] "
                           "strides [4, 1], rank 1 has weight0 Float [5, 5] strides [5, 1]"));
    EXPECT_EQ(later->text, "OK");
  }
}

TEST_P(TrainingRanksFail, WithDebugABackwardFewerShowsWhatEachRankCalledInstead) {
  InitOptions options = Options();
  options.debug = comm::Debug::kDetail;
  Ranks ranks(kRanks, options, [](const InitOptions& own, const Process::Say& say) {
    Trainer trainer(own);
    for (int step = 0; step < kFailingStep; ++step) trainer.Step();
    if (own.rank == 1) trainer.Forward();
    const absl::Status status = TorchStatus("", [&] { trainer.Step(); });
    SayStatus(say, status);
    SayStatus(say, TorchStatus("", [&] { trainer.Step(); }));
    return 0;
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto status = ranks.AwaitStatus(rank), again = ranks.AwaitStatus(rank);
    ASSERT_TRUE(status && again) << "rank " << rank;
    // Rank 1's next forward broadcasts the buffer, while the others reduce the first bucket.
    EXPECT_THAT(
        status->text,
        MatchesRegex(absl::StrCat(
            "INVALID_ARGUMENT: .*call #[0-9]+ differs: ranks 0, 2 have all_reduce of Float \\[65536\\] on cpu, op ",
            GetParam() == "shm" ? "premul_sum" : "sum", "; rank 1 has broadcast of Float \\[1\\] on cpu, root 0.*")))
        << "rank " << rank;
    EXPECT_THAT(again->text, HasSubstr(" differs: ranks 0, 2 have all_reduce")) << "rank " << rank;
  }
}

TEST_P(TrainingRanksFail, ARankThatDoesSomethingElseInsteadOfBackwardIsNamedOnceTimeIsUp) {
  const absl::Duration timeout = absl::Seconds(2);
  Ranks ranks(kRanks, Options(timeout), [](const InitOptions& own, const Process::Say& say) {
    Trainer trainer(own);
    for (int step = 0; step < kFailingStep; ++step) trainer.Step();
    if (own.rank == 1) {
      trainer.Forward();
      pause();
    }
    SayStatus(say, trainer.StepUntilItFails());
    SayStatus(say, TorchStatus("", [&] { trainer.Step(); }));
    return 0;
  });
  const absl::Duration begun = Process::Now();
  ExpectCause(ranks, 1, "DEADLINE_EXCEEDED", ranks.name(1) + " has not begun it: its last call was broadcast #", begun,
              timeout + absl::Seconds(12));
}

TEST_P(TrainingRanksFail, AParameterThatOneRankLeavesOutIsNamedOnAllRanks) {
  const std::string cause =
      "rank 1: 1 of 3 parameters got no gradient in the last backward, so it was not averaged: weight0; ";
  const absl::Duration begun = Process::Now();
  Ranks ranks(kRanks, Options(), [](const InitOptions& own, const Process::Say& say) {
    Trainer trainer(own);
    for (int step = 0; step < kFailingStep; ++step) trainer.Step();
    if (own.rank == 1) {
      trainer.net()->first_layer = 1;
      trainer.Step();
      SayStatus(say, TorchStatus("", [&] { trainer.Step(); }));
      return 0;  // as a program that gives up does
    }
    SayStatus(say, trainer.StepUntilItFails());
    SayStatus(say, TorchStatus("", [&] { trainer.Step(); }));
    // Where it serves the store, the others read there what rank 1 lacked.
    if (own.rank == 0) absl::SleepFor(absl::Seconds(1));
    return 0;
  });
  const auto own = ranks.AwaitStatus(1);
  ASSERT_TRUE(own);
  EXPECT_THAT(own->text, StartsWith("FAILED_PRECONDITION: " + cause));
  ExpectCause(ranks, 1, "UNAVAILABLE", "; before that, " + cause, begun, absl::Seconds(12));
}

}  // namespace
}  // namespace lockstep::ddp
