// Membership: random lives of ranks.

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/testing/membership_job.h"

namespace lockstep::launch {
namespace {

using testing::CauseOf;
using testing::MembershipJob;

// Random lives of processes. Whatever happens, decisions are about processes in the right state, a generation has
// each process once, and when failures end, the job finishes.
class RandomLife {
 public:
  explicit RandomLife(int seed)
      : random_(seed), ranks_(1 + Below(5)), spares_(Below(3)), job_(ranks_, spares_, Limits()) {
    processes_.resize(ranks_ + spares_);
    job_.Start(0, {});
    job_.Stay();
  }

  void Run() {
    for (int event = 0; event < 300 && !over(); ++event) Step(/*may_fail=*/true);
    for (int event = 0; event < 2000 && !over() && !job_.membership().finished(); ++event) Step(false);
    EXPECT_TRUE(over() || job_.membership().finished()) << job_.plan().verdict;
  }

  bool over() const { return !job_.plan().verdict.ok(); }  // the limits ended the job

 private:
  enum class Is { kStarting, kReady, kMember, kGone };
  struct Process {
    Is is = Is::kStarting;
    int64_t in = 0;
    bool told = false;
  };

  Membership::Limits Limits() {
    Membership::Limits limits;
    limits.restarts.head_start = Below(2) * absl::Seconds(1);
    return limits;
  }

  int Below(int n) { return static_cast<int>(random_() % n); }

  void Step(bool may_fail) {
    now_ += 0.001 * Below(2000);
    const int slot = Below(ranks_ + spares_);
    Process& process = processes_[slot];
    if (process.is == Is::kMember && Below(2) == 0) job_.Progress(slot, ++step_);
    if (may_fail && job_.plan().formed && process.is != Is::kGone && Below(8) == 0) {
      Fail(slot);
    } else if (process.is == Is::kStarting || (process.is == Is::kMember && process.told)) {
      process.is = Is::kReady;
      process.told = false;
      job_.slot(slot).phase = SlotState::Phase::kReady;
      job_.slot(slot).left = process.in;
    } else if (!may_fail && process.is == Is::kMember && AllMembersOfOneGeneration()) {
      process.is = Is::kGone;
      job_.slot(slot).phase = SlotState::Phase::kSucceeded;
    }
    job_.Update(now_);
    for (const MembershipJob::Change& change : job_.Take()) Apply(change);
  }

  void Fail(int slot) {
    processes_[slot] = Process();
    processes_[slot].is = Is::kGone;
    job_.slot(slot).phase = SlotState::Phase::kFailed;
    job_.slot(slot).failure = CauseOf("it died");
  }

  bool AllMembersOfOneGeneration() const {
    return std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
      return p.is == Is::kGone || p.is == Is::kReady ||
             (p.is == Is::kMember && p.in == job_.plan().generation && !p.told);
    });
  }

  void Apply(const MembershipJob::Change& change) {
    for (const int slot : change.slots) {
      Process& process = processes_[slot];
      if (change.kind == MembershipJob::Kind::kForm) {
        EXPECT_EQ(process.is, Is::kReady);
        process.is = Is::kMember;
        process.in = job_.plan().generation;
      } else if (change.kind == MembershipJob::Kind::kStart) {
        EXPECT_EQ(process.is, Is::kGone);
        process.is = Is::kStarting;
      } else if (change.kind == MembershipJob::Kind::kKill) {
        EXPECT_EQ(process.is, Is::kMember);
        Fail(slot);
      } else if (change.kind != MembershipJob::Kind::kGiveUp) {
        EXPECT_EQ(process.is, Is::kMember);
        process.told = true;
      }
    }
    if (change.kind == MembershipJob::Kind::kForm) CheckMembers(change.slots);
  }

  void CheckMembers(const std::vector<int>& members) {
    EXPECT_LE(static_cast<int>(members.size()), ranks_);
    std::set<int> slots(members.begin(), members.end()), local_ranks;
    for (const int slot : members) local_ranks.insert(job_.plan().slots[slot].local_rank);
    EXPECT_EQ(slots.size(), members.size());
    EXPECT_EQ(local_ranks.size(), members.size());
    EXPECT_LT(*local_ranks.rbegin(), ranks_);
    for (const Process& process : processes_) {
      EXPECT_TRUE(process.is != Is::kMember || process.in == job_.plan().generation) << "two generations at once";
    }
  }

  std::mt19937 random_;
  double now_ = 0;
  const int ranks_, spares_;
  int64_t step_ = 0;
  MembershipJob job_;
  std::vector<Process> processes_;
};

TEST(Membership, SurvivesRandomLives) {
  int finished = 0;
  for (int seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomLife life(seed);
    life.Run();
    finished += !life.over();
  }
  EXPECT_GT(finished, 500);
}

}  // namespace
}  // namespace lockstep::launch
