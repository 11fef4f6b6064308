// The part of the suite about sends and receives, sub-groups, threads and failures.

#include <ATen/ATen.h>

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "lockstep/comm/testing/backend_conformance.h"
#include "lockstep/comm/testing/reference.h"

namespace lockstep::comm::testing {
namespace {

using ::testing::HasSubstr;

// Called by both ranks of two. A group that fails before the other rank is out of InitProcessGroup fails that call.
void AwaitTheOtherRank(ProcessGroup& group) {
  group.store()->set(absl::StrCat("ready/", group.rank()), "");
  group.store()->wait({absl::StrCat("ready/", 1 - group.rank())});
}

TEST_P(BackendConformance, SendsAndReceivesOfEveryDtype) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const at::ScalarType dtype : AllDtypes()) {
      const at::Tensor sent = Input(0, 2, {5}, dtype, 1), received = at::empty({5}, dtype);
      if (group.rank() == 0) {
        EXPECT_EQ(group.Send(sent, 1), absl::OkStatus());
      } else {
        EXPECT_EQ(group.Recv(received, 0), absl::StatusOr<int>(0));
        EXPECT_TRUE(Same(received, sent)) << c10::toString(dtype);
      }
    }
  });
}

TEST_P(BackendConformance, BigMessagesPassEachOther) {
  OnRanks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const at::Tensor sent = at::full({3000000}, 1.0f + group.rank()), received = at::empty({3000000});
    Work send = group.Isend(sent, other), receive = group.Irecv(received, other);
    EXPECT_EQ(receive.Wait(), absl::OkStatus());
    EXPECT_EQ(send.Wait(), absl::OkStatus());
    EXPECT_TRUE(received.eq(1.0f + other).all().item<bool>());
  });
}

TEST_P(BackendConformance, TagsTellMessagesApart) {
  OnRanks(2, [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int tag = 0; tag < 4; ++tag) {
      tensors.push_back(group.rank() == 0 ? at::full({2}, tag) : at::empty({2}, at::kLong));
    }
    for (int i = 0; i < 4; ++i) {
      const int tag = group.rank() == 0 ? i : 3 - i;
      works.push_back(group.rank() == 0 ? group.Isend(tensors[tag], 1, tag) : group.Irecv(tensors[tag], 0, tag));
    }
    for (Work& work : works) EXPECT_EQ(work.Wait(), absl::OkStatus());
    for (int tag = 0; tag < 4; ++tag) EXPECT_EQ(tensors[tag][1].item<int64_t>(), tag);
  });
}

TEST_P(BackendConformance, AReceiveFromAnyRankSaysFromWhich) {
  OnRanks(3, [](ProcessGroup& group) {
    if (group.rank() > 0) {
      EXPECT_EQ(group.Send(at::full({2}, group.rank()), 0, 5), absl::OkStatus());
      return;
    }
    std::vector<int> sources;
    for (int i = 0; i < 2; ++i) {
      const at::Tensor received = at::empty({2}, at::kLong);
      const absl::StatusOr<int> source = group.Recv(received, ProcessGroup::kAnySource, 5);
      ASSERT_TRUE(source.ok()) << source.status();
      EXPECT_EQ(received[0].item<int64_t>(), *source);
      sources.push_back(*source);
    }
    EXPECT_THAT(sources, ::testing::UnorderedElementsAre(1, 2));
  });
}

TEST_P(BackendConformance, ABatchOfSendsAndReceivesDoesNotDeadlock) {
  OnRanks(3, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 3, previous = (group.rank() + 2) % 3;
    const at::Tensor received = at::empty({400000});
    auto works = group.BatchIsendIrecv({{P2POp::Kind::kSend, at::full({400000}, 1.0f * group.rank()), next},
                                        {P2POp::Kind::kRecv, received, previous}});
    ASSERT_TRUE(works.ok()) << works.status();
    for (Work& work : *works) EXPECT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_TRUE(received.eq(previous).all().item<bool>());
  });
}

TEST_P(BackendConformance, SubGroupsCountTheirRanksAnewAndLiveBesideTheWorld) {
  OnRanks(4, [](ProcessGroup& group) {
    auto odd = group.NewGroup({3, 1}, "odd"), even = group.NewGroup({0, 2}, "even"), own = group.NewGroupByHost();
    ASSERT_TRUE(odd.ok() && even.ok() && own.ok()) << odd.status() << even.status() << own.status();
    EXPECT_EQ(*odd == nullptr, group.rank() % 2 == 0);
    EXPECT_EQ(*even == nullptr, group.rank() % 2 == 1);
    ProcessGroup& mine = group.rank() % 2 ? **odd : **even;
    EXPECT_EQ(mine.size(), 2);
    EXPECT_EQ(mine.rank(), group.rank() / 2);
    EXPECT_EQ(mine.name(), group.rank() % 2 ? "odd" : "even");
    EXPECT_EQ((*own)->size(), 4);
    const at::Tensor in_mine = at::full({3}, group.rank()), in_world = at::ones({3}), in_own = at::ones({1});
    Work first = mine.AllReduceAsync(in_mine), second = group.AllReduceAsync(in_world);
    EXPECT_EQ((*own)->AllReduce(in_own), absl::OkStatus());
    EXPECT_EQ(second.Wait(), absl::OkStatus());
    EXPECT_EQ(first.Wait(), absl::OkStatus());
    EXPECT_EQ(in_mine[0].item<int64_t>(), group.rank() % 2 ? 4 : 2);
    EXPECT_EQ(in_world[0].item<float>(), 4);
    EXPECT_EQ(in_own[0].item<float>(), 4);
    EXPECT_THAT(
        mine.Broadcast(at::ones({1}), 2).message(),
        HasSubstr(absl::StrCat("rank ", mine.rank(), " of group \"", mine.name(), "\": broadcast #1 of Float")));
    EXPECT_EQ(group.Barrier(), absl::OkStatus());
  });
}

// The lock gives every rank one order only because each call is done before the next begins.
TEST_P(BackendConformance, SeveralThreadsOfARankTakeTurnsUnderALock) {
  OnRanks(2, [](ProcessGroup& group) {
    std::mutex turn;
    const auto work = [&] {
      for (int i = 0; i < 50; ++i) {
        const std::lock_guard<std::mutex> lock(turn);
        const at::Tensor tensor = at::ones({10});
        EXPECT_EQ(group.AllReduce(tensor), absl::OkStatus());
        EXPECT_EQ(tensor[9].item<float>(), 2);
      }
    };
    std::thread other(work);
    work();
    other.join();
  });
}

TEST_P(BackendConformance, EachThreadMayUseAGroupOfItsOwn) {
  OnRanks(2, [](ProcessGroup& group) {
    auto second = group.NewGroup({0, 1});
    ASSERT_TRUE(second.ok()) << second.status();
    const auto work = [](ProcessGroup& own, float value) {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor tensor = at::full({1000}, value);
        EXPECT_EQ(own.AllReduce(tensor), absl::OkStatus());
        EXPECT_EQ(tensor[999].item<float>(), 2 * value);
      }
    };
    std::thread other([&] { work(**second, 5); });
    work(group, 3);
    other.join();
  });
}

TEST_P(BackendConformance, AbortEndsTheWaitsUnderWay) {
  OnRanks(2, [](ProcessGroup& group) {
    AwaitTheOtherRank(group);
    if (group.rank() == 0) {
      Work collective = group.AllReduceAsync(at::zeros({100}));
      Work receive = group.Irecv(at::zeros({100}), 1);
      std::thread other([&] { group.Abort(absl::CancelledError("enough")); });
      const absl::Time start = absl::Now();
      EXPECT_THAT(collective.Wait().message(), HasSubstr("enough"));
      EXPECT_THAT(receive.Wait().message(), HasSubstr("enough"));
      EXPECT_LT(absl::Now() - start, absl::Seconds(10));
      other.join();
      EXPECT_EQ(group.Barrier(), absl::CancelledError("enough"));
      EXPECT_EQ(group.failure(), absl::CancelledError("enough"));
    }
    // Rank 1 stays until then.
    if (group.rank() == 0) group.store()->set("aborted", "");
    if (group.rank() == 1) group.store()->wait({"aborted"});
  });
}

TEST_P(BackendConformance, AWaitEndsAtItsDeadline) {
  OnRanks(2, [](ProcessGroup& group) {
    AwaitTheOtherRank(group);
    if (group.rank() == 0) {
      Work work = group.BarrierAsync();
      const absl::Time start = absl::Now();
      const absl::Status status = work.WaitHost(start + absl::Milliseconds(300));
      EXPECT_LT(absl::Now() - start, absl::Seconds(10));
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_EQ(group.failure().code(), absl::StatusCode::kDeadlineExceeded);
    }
    if (group.rank() == 0) group.store()->set("late", "");
    if (group.rank() == 1) group.store()->wait({"late"});
  });
}

TEST_P(BackendConformance, ShutdownEndsTheGroupOnEveryRank) {
  OnRanks(2, [](ProcessGroup& group) {
    EXPECT_EQ(group.Shutdown(absl::Now() + absl::Seconds(30)), absl::OkStatus());
    EXPECT_EQ(group.Barrier(),
              absl::FailedPreconditionError(absl::StrCat("rank ", group.rank(), ": the group was shut down")));
  });
}

}  // namespace
}  // namespace lockstep::comm::testing
