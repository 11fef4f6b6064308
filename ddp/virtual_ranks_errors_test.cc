// Wrong loops over virtual ranks end with an error that names the place, on every rank and without waiting for long.

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"
#include "lockstep/ddp/testing/virtual_training.h"

namespace lockstep::ddp {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::VirtualCase;
using testing::VirtualNet;

constexpr int kVirtualRanks = 4;

using Ddp = DistributedDataParallel<VirtualNet>;

void Backward(Ddp& ddp, int step, int virtual_rank) {
  testing::LossOf(ddp, testing::InputOf(VirtualCase(), step, virtual_rank)).backward();
}

void WholeStep(Ddp& ddp, int step) {
  for (const int virtual_rank : ddp.VirtualRanks(step)) Backward(ddp, step, virtual_rank);
}

Options FourVirtualRanks() {
  Options options;
  options.virtual_ranks = kVirtualRanks;
  return options;
}

// Returns the error of each rank that trains one step and then this one.
std::vector<std::string> ErrorsOf(int ranks, const std::function<void(Ddp& ddp)>& second_step,
                                  const std::string& backend = "threads") {
  const auto body = [&](comm::ProcessGroup& group) {
    const absl::Status status = TorchStatus("", [&] {
      Ddp ddp = testing::Wrapped(VirtualNet(), group, FourVirtualRanks());
      WholeStep(ddp, 0);
      second_step(ddp);
    });
    if (!status.ok()) group.Abort(status);  // as the program ends
    return status;
  };
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(10);
  std::vector<std::string> errors;
  for (const absl::Status& result : backend == "threads" ? comm::testing::RunRanks(ranks, body, options.timeout)
                                                         : comm::testing::InitRanks(options, ranks, body)) {
    errors.emplace_back(result.message());
  }
  return errors;
}

TEST(VirtualRanksErrors, AVirtualRankWithoutABackwardIsNamedOnEveryRank) {
  for (const char* backend : {"threads", "shm", "gloo"}) {
    for (int ranks = 1; ranks <= kVirtualRanks; ++ranks) {
      if (ranks == 1 && backend != std::string("threads")) continue;
      for (const int without : {0, kVirtualRanks - 1}) {
        const std::vector<std::string> errors = ErrorsOf(
            ranks,
            [&](Ddp& ddp) {
              for (const int virtual_rank : ddp.VirtualRanks(1)) {
                if (virtual_rank != without) Backward(ddp, 1, virtual_rank);
              }
            },
            backend);
        const int rank = without == 0 ? 0 : ranks - 1;
        EXPECT_THAT(errors, Each(HasSubstr(absl::StrCat("rank ", rank, ": virtual rank ", without,
                                                        " of step 1 ran no backward outside of NoSync"))))
            << ranks << " ranks over " << backend;
      }
    }
  }
}

TEST(VirtualRanksErrors, AStepUnderNoSyncIsNamed) {
  for (const int ranks : {1, 2, 4}) {
    const std::vector<std::string> errors = ErrorsOf(ranks, [&](Ddp& ddp) {
      const NoSync no_sync(ddp);
      WholeStep(ddp, 1);
    });
    EXPECT_THAT(errors, Each(HasSubstr(" of step 1 ran no backward outside of NoSync")));
    EXPECT_THAT(errors[0], HasSubstr("rank 0: virtual rank 0 of step 1"));
  }
}

// It would average twice.
TEST(VirtualRanksErrors, ASecondBackwardOutsideOfNoSyncIsNamed) {
  for (const int ranks : {1, 2, 4}) {
    const std::vector<std::string> errors = ErrorsOf(ranks, [&](Ddp& ddp) {
      for (const int virtual_rank : ddp.VirtualRanks(1)) {
        Backward(ddp, 1, virtual_rank);
        Backward(ddp, 1, virtual_rank);
      }
    });
    EXPECT_THAT(errors, Each(HasSubstr(" of step 1 runs a second backward outside of NoSync")));
    EXPECT_THAT(errors[0], HasSubstr("rank 0: virtual rank 0 of step 1"));
  }
}

TEST(VirtualRanksErrors, ALoopLeftEarlyIsNamedAtTheNextStep) {
  for (const int ranks : {1, 2}) {
    const std::vector<std::string> errors = ErrorsOf(ranks, [&](Ddp& ddp) {
      for (const int virtual_rank : ddp.VirtualRanks(1)) {
        Backward(ddp, 1, virtual_rank);
        break;
      }
      WholeStep(ddp, 2);
    });
    EXPECT_THAT(errors, Each(HasSubstr("the loop over VirtualRanks() of step 1 was left at virtual rank ")));
    EXPECT_THAT(errors[0], HasSubstr("rank 0: the loop over VirtualRanks() of step 1 was left at virtual rank 0:"));
  }
}

TEST(VirtualRanksErrors, AForwardAfterTheLoopIsNamed) {
  const std::vector<std::string> errors = ErrorsOf(2, [&](Ddp& ddp) {
    try {
      for (const int virtual_rank : ddp.VirtualRanks(1)) {
        Backward(ddp, 1, virtual_rank);
        throw std::runtime_error("the program's");
      }
    } catch (const std::runtime_error&) {
      Backward(ddp, 1, 0);
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("call forward in the loop over VirtualRanks()")));
}

// All ranks throw at the same place among the group's collectives: before the first backward, or in the last virtual
// rank after it. The optimizer has not stepped, so the step is repeated.
TEST(VirtualRanksErrors, AfterAnExceptionTheStepCanBeRepeated) {
  for (const bool before_backward : {true, false}) {
    std::vector<testing::State> states;
    for (int ranks = 1; ranks <= kVirtualRanks; ++ranks) {
      const auto body = [&](comm::ProcessGroup& group) {
        const VirtualNet net;
        Ddp ddp = testing::Wrapped(net, group, FourVirtualRanks());
        torch::optim::SGD optimizer = testing::MomentumSgd(ddp.parameters());
        const int last = kVirtualRanks * (group.rank() + 1) / ranks - 1;
        for (int step = 0; step < VirtualCase::kSteps; ++step) {
          optimizer.zero_grad();
          const auto throwing = [&] {
            for (const int virtual_rank : ddp.VirtualRanks(step)) {
              if (before_backward) throw std::runtime_error("the program's");
              Backward(ddp, step, virtual_rank);
              if (virtual_rank == last) throw std::runtime_error("the program's");
            }
          };
          EXPECT_THROW(throwing(), std::runtime_error);
          testing::TrainStep(ddp, optimizer, step, VirtualCase());
        }
        if (group.rank() == 0) states.push_back(testing::StateOf(net, optimizer));
      };
      EXPECT_EQ(comm::testing::RunRanksOk(ranks, body), absl::OkStatus());
      testing::ExpectSameBits(states.back(), states.front(), absl::StrCat(ranks, " ranks"));
    }
    VirtualCase without;
    without.options = FourVirtualRanks();
    const testing::State undisturbed = testing::Train(1, without);
    // Without the statistics of BatchNorm, which the forward passes of the repeated step have changed too.
    const auto statistics = static_cast<int64_t>(VirtualNet()->buffers().size());
    testing::ExpectSameBits({states[0].begin(), states[0].end() - statistics},
                            {undisturbed.begin(), undisturbed.end() - statistics}, "without exceptions");
  }
}

}  // namespace
}  // namespace lockstep::ddp
