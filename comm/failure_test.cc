// A group's reaction to an error, and to the knowledge of its watch. The watch is a stand-in that notes what it is
// asked.

#include <ATen/ATen.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/group_factory.h"
#include "lockstep/comm/internal/uncaught.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/thread_backend.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NotingWatch : public internal::GroupWatch {
 public:
  void Begin(int64_t sequence, const char* operation) override { Record("begin ", sequence, operation); }
  void End(int64_t sequence) override { Record("end ", sequence, ""); }
  absl::Status Explain(const absl::Status& error) override {
    notes.push_back(absl::StrCat("explain ", error.message()));
    return cause.ok() ? error : cause;
  }
  absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) override {
    Record("late ", sequence, absl::StrCat(operation, " ", absl::FormatDuration(timeout)));
    return cause;
  }
  absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time) override {
    Record("agree ", sequence, fingerprint);
    return cause;
  }
  void Abort(const absl::Status& status) override {
    notes.push_back(absl::StrCat("abort ", status.message()));
    if (on_abort) on_abort(status);
  }

  absl::Status cause;
  std::function<void(const absl::Status&)> on_abort;
  std::vector<std::string> notes;

 private:
  void Record(absl::string_view what, int64_t sequence, absl::string_view rest) {
    notes.push_back(absl::StrCat(what, sequence, rest.empty() ? "" : " ", rest));
  }
};

// Rank 0 of 2; nobody is the other.
struct Lonely {
  explicit Lonely(absl::Duration timeout = absl::Milliseconds(50), bool detail = false, std::string name = "world")
      : hub(2, timeout), watch(std::make_shared<NotingWatch>()) {
    internal::GroupState::Options options;
    options.size = 2;
    options.timeout = timeout;
    options.detail = detail;
    options.name = std::move(name);
    state = std::make_shared<internal::GroupState>(std::move(options));
    internal::GroupParts parts;
    parts.state = state;
    parts.state->SetWatch(watch);
    parts.backends[c10::DeviceType::CPU] = testing::MakeThreadBackend(hub, 0);
    parts.abortable = true;
    group = internal::GroupAccess::FromParts(std::move(parts));
  }

  testing::ThreadHub hub;
  std::shared_ptr<NotingWatch> watch;
  std::shared_ptr<internal::GroupState> state;
  std::unique_ptr<ProcessGroup> group;
};

const absl::Status kDeath = absl::UnavailableError("rank 1 (host b, pid 7) died: signal 9 (Killed)");

TEST(Failure, AnErrorGivesWayToWhatTheWatchKnows) {
  Lonely rank;
  rank.watch->cause = kDeath;
  rank.hub.Leave(1, "it is gone");
  EXPECT_EQ(rank.group->AllReduce(at::zeros({2})),
            absl::UnavailableError(
                "rank 0: all_reduce #0 of Float [2] on cpu: rank 1 (host b, pid 7) died: signal 9 (Killed)"));
  EXPECT_EQ(rank.group->failure(), kDeath);
  EXPECT_EQ(rank.group->Barrier(), kDeath);
  EXPECT_THAT(rank.watch->notes,
              ElementsAre("begin 0 all_reduce",
                          "explain rank 0: all_reduce #0 of Float [2] on cpu: rank 1 left the group: it is gone"));
}

TEST(Failure, AnErrorThatNobodyCanExplainIsTheCause) {
  Lonely rank;
  rank.hub.Leave(1, "it is gone");
  const absl::Status status = rank.group->Barrier();
  EXPECT_EQ(status, absl::UnavailableError("rank 0: barrier #0: rank 1 left the group: it is gone"));
  EXPECT_EQ(rank.group->failure(), status);
}

TEST(Failure, ADeadlineIsExplainedByAskingWhereTheRanksAre) {
  Lonely rank;
  rank.watch->cause = absl::DeadlineExceededError("rank 1 (host b, pid 7) has begun nothing");
  EXPECT_EQ(rank.group->Barrier(),
            absl::DeadlineExceededError("rank 0: barrier #0: rank 1 (host b, pid 7) has begun nothing"));
  EXPECT_THAT(rank.watch->notes, ElementsAre("begin 0 barrier", "late 0 barrier 50ms"));
}

TEST(Failure, ASendOrReceiveIsNotAPlaceInTheOrderOfCollectives) {
  Lonely rank;
  rank.watch->cause = kDeath;
  EXPECT_EQ(
      rank.group->Recv(at::zeros({2}), 1, 3).status().message(),
      "rank 0: recv #0 from rank 1 with tag 3 of Float [2] on cpu: rank 1 (host b, pid 7) died: signal 9 (Killed)");
  EXPECT_THAT(rank.watch->notes,
              ElementsAre("explain rank 0: recv #0 from rank 1 with tag 3 of Float [2] on cpu: timed out after 50 ms"));
}

TEST(Failure, AbortIsToldToTheOtherRanksAndEndsWaits) {
  Lonely rank(absl::Seconds(60));
  Work work = rank.group->BarrierAsync();
  rank.group->Abort(absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(work.Wait(), absl::ResourceExhaustedError("rank 0: barrier #0: disk full"));
  EXPECT_EQ(rank.group->failure(), absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(rank.watch->notes, ElementsAre("begin 0 barrier", "abort disk full"));
}

// Records what this process tells its launcher during the test.
class LaunchedFailure : public ::testing::Test {
 protected:
  void SetUp() override { setenv("LOCKSTEP_ERROR_FILE", path_.c_str(), 1); }
  void TearDown() override { unsetenv("LOCKSTEP_ERROR_FILE"); }
  std::string Told() const {
    std::ifstream file(path_);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  const std::string path_ =
      absl::StrCat(getenv("TEST_TMPDIR"), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(LaunchedFailure, IsNotedWhereAnotherRankIsToBlame) {
  Lonely rank;
  rank.watch->cause = kDeath;
  rank.hub.Leave(1, "it is gone");
  EXPECT_FALSE(rank.group->Barrier().ok());
  EXPECT_THAT(Told(), HasSubstr("LOCKSTEP1 told "));
}

TEST_F(LaunchedFailure, IsNotedWhereNobodyKnowsWhyAConnectionBroke) {
  Lonely rank;
  rank.hub.Leave(1, "it is gone");
  EXPECT_FALSE(rank.group->Barrier().ok());
  EXPECT_THAT(Told(), HasSubstr("LOCKSTEP1 told "));
}

// A group of this process alone.
absl::Status FormAnotherGroup() {
  static int groups = 0;
  InitOptions options;
  options.init_method = absl::StrCat("file://", getenv("TEST_TMPDIR"), "/store", ++groups);
  options.backend = "gloo";
  options.rank = 0;
  options.world_size = 1;
  return InitProcessGroup(options).status();
}

TEST_F(LaunchedFailure, IsForgottenByAProcessThatOutlivesItsGroup) {
  {
    Lonely rank;
    rank.hub.Leave(1, "it is gone");
    EXPECT_FALSE(rank.group->Barrier().ok());
    EXPECT_EQ(FormAnotherGroup(), absl::OkStatus());
    EXPECT_THAT(Told(), HasSubstr("LOCKSTEP1 told ")) << "the failed group may still end this process";
  }
  EXPECT_EQ(FormAnotherGroup(), absl::OkStatus());
  EXPECT_EQ(Told(), "");
}

TEST_F(LaunchedFailure, IsNotNotedWhereThisRankGaveUp) {
  Lonely rank(absl::Seconds(60));
  rank.group->Abort(absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(rank.group->Barrier().ok());
  EXPECT_EQ(Told(), "");
}

TEST_F(LaunchedFailure, IsNotNotedWhereThisRankLeaves) {
  const auto state = std::make_shared<internal::GroupState>(internal::GroupState::Options());
  state->Close();
  state->LearnFailure(absl::UnavailableError("rank 0 (host a, pid 7) left the group after barrier #0"));
  EXPECT_EQ(Told(), "");
}

TEST_F(LaunchedFailure, IsNotNotedWhereTheWatchTellsThisRanksOwnError) {
  internal::GroupState state((internal::GroupState::Options()));
  state.RecordOwnError(absl::InternalError("no memory left"));
  state.LearnFailure(absl::InternalError("no memory left"));
  EXPECT_EQ(Told(), "");
}

TEST(Failure, InDetailEachCollectiveIsAgreedOnFirst) {
  Lonely rank(absl::Seconds(60), /*detail=*/true);
  Work work = rank.group->AllReduceAsync(at::zeros({3}), ReduceOp::kMax);
  EXPECT_EQ(rank.watch->notes[0], "agree 0 all_reduce of Float [3] on cpu, op max");
  Work exchange = rank.group->AllToAllSingleAsync(at::zeros({4}), at::zeros({4}));
  EXPECT_EQ(rank.watch->notes[2], "agree 1 all_to_all_single of Float");
  rank.watch->cause = absl::InvalidArgumentError("rank 0: a; rank 1: b");
  EXPECT_EQ(rank.group->Broadcast(at::zeros({3}), 1),
            absl::InvalidArgumentError("rank 0: broadcast #2 of Float [3] on cpu: rank 0: a; rank 1: b"));
  EXPECT_EQ(rank.watch->notes[4], "agree 2 broadcast of Float [3] on cpu, root 1");
  EXPECT_EQ(rank.group->failure(), rank.watch->cause);
}

TEST(Failure, ARefusedCallIsNotAFailure) {
  Lonely rank;
  EXPECT_THAT(rank.group->AllReduce(at::zeros({2}, at::kUInt64)).message(),
              HasSubstr("rank 0: all_reduce #0 of UInt64 [2] on cpu: ALLREDUCE of UInt64 is not implemented"));
  EXPECT_EQ(rank.group->failure(), absl::OkStatus());
  EXPECT_THAT(rank.watch->notes, ElementsAre("begin 0 all_reduce", "end 0"));
}

TEST(Failure, AGroupThatAnExceptionDestroysTellsTheOthers) {
  std::shared_ptr<NotingWatch> watch;
  try {
    Lonely rank;
    watch = rank.watch;
    throw std::runtime_error("out of cheese");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(watch->notes, ElementsAre("abort left by an exception"));
  { watch = Lonely().watch; }
  EXPECT_THAT(watch->notes, ElementsAre());
}

TEST(Failure, MessagesNameASubGroup) {
  Lonely rank(absl::Seconds(60), /*detail=*/false, "rows");
  EXPECT_EQ(rank.group->Broadcast(at::zeros({1}), 5).message(),
            "rank 0 of group \"rows\": broadcast #0 of Float [1] on cpu: root 5 is not a rank of a group of 2");
  EXPECT_EQ(rank.group->BarrierAsync().id(), "barrier #0 in group \"rows\"");
  EXPECT_EQ(Lonely(absl::Seconds(60)).group->BarrierAsync().id(), "barrier #0");
}

// Throws one thing or another wherever a backend may.
class ThrowingBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit ThrowingBackend(std::function<void()> raise) : Backend(0, 2), raise_(std::move(raise)) {}

  const std::string getBackendName() const override { return Raise<std::string>(); }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return false; }
  void abort() override { raise_(); }
  void shutdown() override { raise_(); }
  void waitForPendingWorks() override { raise_(); }
  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override { return Raise(); }
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override { return Raise(); }
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override { return Raise(); }
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override { return Raise(); }
  WorkPtr allgather(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override { return Raise(); }
  WorkPtr _allgather_base(at::Tensor&, at::Tensor&, const c10d::AllgatherOptions&) override { return Raise(); }
  WorkPtr reduce_scatter(Tensors&, std::vector<Tensors>&, const c10d::ReduceScatterOptions&) override {
    return Raise();
  }
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&, const c10d::ReduceScatterOptions&) override { return Raise(); }
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override {
    return Raise();
  }
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override { return Raise(); }
  WorkPtr gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override { return Raise(); }
  WorkPtr scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override { return Raise(); }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return Raise(); }
  WorkPtr send(Tensors&, int, int) override { return Raise(); }
  WorkPtr recv(Tensors&, int, int) override { return Raise(); }
  WorkPtr recvAnysource(Tensors&, int) override { return Raise(); }

 protected:
  template <typename T = WorkPtr>
  T Raise() const {
    raise_();
    return {};
  }

  const std::function<void()> raise_;
};

class ThrowingWork : public c10d::Work {
 public:
  explicit ThrowingWork(std::function<void()> raise) : raise_(std::move(raise)) {}
  bool isCompleted() override { return Raise(); }
  bool wait(std::chrono::milliseconds) override { return Raise(); }
  int sourceRank() const override { return Raise(); }

 private:
  bool Raise() const {
    raise_();
    return true;
  }
  const std::function<void()> raise_;
};

// Its calls begin, and then their works throw.
class LateThrowingBackend : public ThrowingBackend {
 public:
  using ThrowingBackend::ThrowingBackend;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<ThrowingWork>(raise_);
  }
  WorkPtr recvAnysource(Tensors&, int) override { return c10::make_intrusive<ThrowingWork>(raise_); }
};

std::unique_ptr<ProcessGroup> Over(c10::intrusive_ptr<c10d::Backend> backend) {
  BackendMap backends;
  backends[c10::DeviceType::CPU] = std::move(backend);
  return internal::GroupAccess::FromBackends(c10::make_intrusive<c10d::HashStore>(), std::move(backends));
}

// The exceptions that backends have been seen to throw, and others that they might.
const std::vector<std::pair<std::function<void()>, std::string>> kThrown = {
    {[] { throw std::runtime_error("the tape is torn"); }, "the tape is torn"},
    {[] { TORCH_CHECK_WITH(DistBackendError, false, "no carrier"); }, "no carrier"},
    {[] { throw 42; }, "an exception that is not a std::exception"},  // NOLINT
};

TEST(Failure, WhateverABackendThrowsIsTheCallsStatus) {
  const at::Tensor x = at::zeros({2}), two = at::zeros({4});
  const std::vector<std::function<absl::Status(ProcessGroup&)>> calls = {
      [&](ProcessGroup& group) { return group.Broadcast(x, 0); },
      [&](ProcessGroup& group) { return group.AllReduce(x); },
      [&](ProcessGroup& group) { return group.AllReduce(at::eye(2).to_sparse()); },
      [&](ProcessGroup& group) { return internal::GroupAccess::AllReducePremulSumAsync(group, x, 0.5).Wait(); },
      [&](ProcessGroup& group) {
        return group.AllReduceCoalesced({x, two});
      },
      [&](ProcessGroup& group) { return group.Reduce(x, 0); },
      [&](ProcessGroup& group) {
        return group.AllGather({x, x}, x);
      },
      [&](ProcessGroup& group) { return group.AllGatherIntoTensor(two, x); },
      [&](ProcessGroup& group) {
        return group.ReduceScatter(x, {x, x});
      },
      [&](ProcessGroup& group) { return group.ReduceScatterTensor(x, two); },
      [&](ProcessGroup& group) {
        return group.AllToAll({x, x}, {x, x});
      },
      [&](ProcessGroup& group) { return group.AllToAllSingle(two, two); },
      [&](ProcessGroup& group) {
        return group.Gather({x, x}, x, 0);
      },
      [&](ProcessGroup& group) {
        return group.Scatter(x, {x, x}, 0);
      },
      [&](ProcessGroup& group) { return group.Send(x, 1); },
      [&](ProcessGroup& group) { return group.Recv(x, 1).status(); },
      [&](ProcessGroup& group) { return group.Recv(x).status(); },
      [&](ProcessGroup& group) { return group.Barrier(); },
      [&](ProcessGroup& group) { return group.Shutdown(absl::Now()); },
  };
  for (const auto& [raise, text] : kThrown) {
    for (const auto& call : calls) {
      const auto group = Over(c10::make_intrusive<ThrowingBackend>(raise));
      const absl::Status status = call(*group);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), AllOf(StartsWith("rank 0: "), HasSubstr(text)));
      EXPECT_EQ(group->failure(), status);
    }
  }
}

// On a GPU: elastic/devices_test.cc.
TEST(Failure, SynchronizeReturnsTheFailure) {
  const auto group = Over(c10::make_intrusive<ThrowingBackend>([] {}));
  EXPECT_EQ(group->Synchronize(at::kCPU), absl::OkStatus());
  const absl::Status cause = absl::AbortedError("the operator has had enough");
  group->Abort(cause);
  EXPECT_EQ(group->Synchronize(at::kCPU), cause);
}

TEST(Failure, WhateverAWorkThrowsIsTheCallsStatus) {
  for (const auto& [raise, text] : kThrown) {
    const auto late = [raise = raise] { return Over(c10::make_intrusive<LateThrowingBackend>(raise)); };
    const auto group = late();
    Work work = group->AllReduceAsync(at::zeros({2}));
    EXPECT_TRUE(work.IsCompleted());
    EXPECT_THAT(std::string(work.Wait().message()), HasSubstr(text));
    EXPECT_EQ(group->failure(), work.Wait());
    EXPECT_THAT(std::string(late()->Recv(at::zeros({2})).status().message()), HasSubstr(text));
    const Work dropped = late()->AllReduceAsync(at::zeros({2}));
  }
}

// The watch reports every cause to every rank, the one that failed included.
void DieOfAnException() {
  Lonely rank;
  const auto state = rank.state;
  rank.watch->on_abort = [&](const absl::Status& cause) {
    fprintf(stderr, "told: %s\n", std::string(cause.message()).c_str());
    state->LearnFailure(cause);
  };
  internal::ReportUncaughtExceptions(state);
  std::thread([] { throw std::runtime_error("the tape is torn"); }).join();
}

TEST(FailureDeathTest, AnUncaughtExceptionIsToldBeforeItEndsTheProcess) {
  EXPECT_DEATH(DieOfAnException(), "told: uncaught exception: the tape is torn(.|\n)*terminate called");
}

TEST_F(LaunchedFailure, IsNotNotedWhereAnUncaughtExceptionEndsThisRank) {
  EXPECT_DEATH(DieOfAnException(), "told: uncaught exception: the tape is torn");
  EXPECT_EQ(Told(), "");
}

}  // namespace
}  // namespace lockstep::comm
