#include "lockstep/elastic/chaos/internal/faults.h"

#include <utility>

namespace lockstep::elastic::chaos::internal {
namespace {

struct KindInfo {
  FaultKind kind;
  const char* name;
  int ranks_needed;
  int victims;  // -1: all but one
};

constexpr KindInfo kKinds[] = {
    {FaultKind::kKill, "SIGKILL", 2, 1},
    {FaultKind::kKillRank0, "SIGKILL of rank 0", 2, 1},
    {FaultKind::kKillTwo, "SIGKILL of two ranks", 3, 2},
    {FaultKind::kKillAllButOne, "SIGKILL of all ranks but one", 3, -1},
    {FaultKind::kKillInRegroup, "SIGKILL of a second rank in the regroup", 3, 2},
    {FaultKind::kKillAtStart, "SIGKILL, again just after the restart", 2, 1},
    {FaultKind::kKillNewcomer, "SIGKILL, again while the newcomer joins", 2, 1},
    {FaultKind::kKillBesideNewcomer, "SIGKILL of another rank while a newcomer joins", 3, 2},
    {FaultKind::kSegv, "SIGSEGV", 2, 1},
    {FaultKind::kAbort, "SIGABRT", 2, 1},
    {FaultKind::kStop, "SIGSTOP and SIGCONT", 2, 1},
    {FaultKind::kStopAndKill, "SIGSTOP while another rank dies", 3, 2},
    {FaultKind::kStopTooLong, "SIGSTOP past the deadline to leave", 3, 2},
    {FaultKind::kExit0, "exit 0 in mid-training", 2, 1},
    {FaultKind::kExit1, "exit 1", 2, 1},
    {FaultKind::kThrow, "exception in the step", 2, 1},
    {FaultKind::kOutOfMemory, "out of memory", 2, 1},
    {FaultKind::kFewDescriptors, "no descriptors left while another rank dies", 3, 2},
    {FaultKind::kFullDevShm, "/dev/shm full while a rank dies", 2, 1},
};

const KindInfo& InfoOf(FaultKind kind) { return kKinds[static_cast<int>(kind)]; }

}  // namespace

const std::vector<FaultKind>& AllFaultKinds() {
  static const auto& kinds = *[] {
    auto* const all = new std::vector<FaultKind>;
    for (const KindInfo& info : kKinds) all->push_back(info.kind);
    return all;
  }();
  return kinds;
}

std::string FaultName(FaultKind kind) { return InfoOf(kind).name; }

int RanksNeeded(FaultKind kind) { return InfoOf(kind).ranks_needed; }

std::vector<int> Victims(const Fault& fault, int ranks) {
  const int count = InfoOf(fault.kind).victims < 0 ? ranks - 1 : InfoOf(fault.kind).victims;
  if (fault.kind == FaultKind::kKillRank0) return {0};
  std::vector<int> left, victims;
  for (int rank = 0; rank < ranks; ++rank) left.push_back(rank);
  uint64_t choice = fault.choice;
  while (static_cast<int>(victims.size()) < count) {
    const auto place = left.begin() + static_cast<int64_t>(choice % left.size());
    choice /= left.size();
    victims.push_back(*place);
    left.erase(place);
  }
  return victims;
}

FaultSchedule::FaultSchedule(uint64_t seed, std::vector<FaultKind> kinds, absl::Duration leave_timeout)
    : random_(seed), kinds_(std::move(kinds)), leave_timeout_(leave_timeout) {}

// std::uniform_int_distribution and std::shuffle give other numbers with another standard library.
absl::Duration FaultSchedule::Between(absl::Duration least, absl::Duration most) {
  return least + absl::Microseconds(random_() % (absl::ToInt64Microseconds(most - least) + 1));
}

absl::Duration FaultSchedule::DelayOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillInRegroup:
    case FaultKind::kKillAtStart:
    case FaultKind::kKillNewcomer:
    case FaultKind::kKillBesideNewcomer:
      return Between(absl::ZeroDuration(), absl::Milliseconds(30));
    case FaultKind::kStop:
    case FaultKind::kStopAndKill:
      return Between(absl::Milliseconds(10), leave_timeout_ / 2);
    case FaultKind::kStopTooLong:
      return leave_timeout_ + Between(absl::Milliseconds(200), absl::Milliseconds(500));
    default:
      return absl::ZeroDuration();
  }
}

Fault FaultSchedule::Next() {
  if (round_.empty()) round_ = kinds_;
  const auto place = round_.begin() + static_cast<int64_t>(random_() % round_.size());
  Fault fault;
  fault.kind = *place;
  fault.choice = random_();
  fault.delay = DelayOf(fault.kind);
  round_.erase(place);
  return fault;
}

}  // namespace lockstep::elastic::chaos::internal
