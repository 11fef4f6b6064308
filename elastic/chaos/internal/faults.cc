#include "lockstep/elastic/chaos/internal/faults.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace lockstep::elastic::chaos::internal {
namespace {

struct KindInfo {
  FaultKind kind;
  const char* name;
  int ranks_needed;
  int victims;  // -1: all but one
  int hosts_needed = 0;
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
    {FaultKind::kKillHost, "SIGKILL of a launcher", 2, 0, 2},
    {FaultKind::kKillLeader, "SIGKILL of the launcher that leads", 2, 0, 2},
    {FaultKind::kKillHostAndRank, "SIGKILL of a launcher and of another host's rank", 3, 0, 2},
    {FaultKind::kKillHostBesideNewcomer, "SIGKILL of a launcher while another host joins", 3, 0, 3},
    {FaultKind::kKillAllHostsButOne, "SIGKILL of all launchers but one and of its ranks but one", 2, 0, 2},
    {FaultKind::kDrainHost, "launch drain", 2, 0, 2},
    {FaultKind::kTermHost, "SIGTERM to a launcher", 2, 0, 2},
    {FaultKind::kStranger, "a launcher of another job", 2, 0, 2},
    {FaultKind::kSleep, "a rank asleep in its step", 2, 1},
    {FaultKind::kCutPath, "no packets from one host to another", 3, 0, 3},
    {FaultKind::kCutPair, "no packets between two hosts", 3, 0, 3},
    {FaultKind::kCutHost, "no packets between a host and all others", 3, 0, 3},
};

const KindInfo& InfoOf(FaultKind kind) { return kKinds[static_cast<int>(kind)]; }

// Takes one of `values` away, which are not empty.
int Draw(std::vector<int>* values, uint64_t* choice) {
  const auto place = values->begin() + static_cast<int64_t>(*choice % values->size());
  *choice /= values->size();
  const int value = *place;
  values->erase(place);
  return value;
}

// The ranks on hosts that are none of `hosts`.
std::vector<int> RanksBeside(const std::vector<int>& hosts, const WorldView& world) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < world.host_of_rank.size(); ++rank) {
    if (!absl::c_linear_search(hosts, world.host_of_rank[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// The hosts that have ranks and may be hurt.
std::vector<int> HostsToHurt(const WorldView& world) {
  std::vector<int> hosts;
  for (const int host : world.hosts) {
    if (host != world.spared && absl::c_linear_search(world.host_of_rank, host)) hosts.push_back(host);
  }
  return hosts;
}

HostVictims AllButOneRank(uint64_t choice, const WorldView& world) {
  std::vector<int> candidates;
  for (size_t rank = 0; rank < world.host_of_rank.size(); ++rank) {
    if (world.spared < 0 || world.host_of_rank[rank] == world.spared) candidates.push_back(static_cast<int>(rank));
  }
  if (candidates.empty()) return {};
  const int stays = Draw(&candidates, &choice);
  HostVictims victims;
  for (const int host : world.hosts) {
    if (host != world.host_of_rank[stays]) victims.hosts.push_back(host);
  }
  for (const int rank : RanksBeside(victims.hosts, world)) {
    if (rank != stays) victims.ranks.push_back(rank);
  }
  return victims;
}

HostVictims Candidates(const Fault& fault, const WorldView& world) {
  HostVictims victims;
  uint64_t choice = fault.choice;
  std::vector<int> hosts = HostsToHurt(world);
  if (fault.kind == FaultKind::kKillAllHostsButOne) return AllButOneRank(choice, world);
  if (fault.kind == FaultKind::kKillLeader) {
    if (absl::c_linear_search(hosts, world.leader)) victims.hosts = {world.leader};
    return victims;
  }
  const size_t number = fault.kind == FaultKind::kKillHostBesideNewcomer ? 2 : 1;
  if (hosts.size() < number) return {};
  while (victims.hosts.size() < number) victims.hosts.push_back(Draw(&hosts, &choice));
  if (fault.kind != FaultKind::kKillHostAndRank) return victims;
  std::vector<int> others = RanksBeside(victims.hosts, world);
  if (others.empty()) return {};
  victims.ranks = {Draw(&others, &choice)};
  return victims;
}

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

int HostsNeeded(FaultKind kind) { return InfoOf(kind).hosts_needed; }

bool EndsSeveralRanks(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillTwo:
    case FaultKind::kKillAllButOne:
    case FaultKind::kKillInRegroup:
    case FaultKind::kKillBesideNewcomer:
    case FaultKind::kStopTooLong:
    case FaultKind::kFewDescriptors:
    case FaultKind::kKillHostAndRank:
    case FaultKind::kKillHostBesideNewcomer:
    case FaultKind::kKillAllHostsButOne:
      return true;
    default:
      return false;
  }
}

bool IsCut(FaultKind kind) {
  return kind == FaultKind::kCutPath || kind == FaultKind::kCutPair || kind == FaultKind::kCutHost;
}

bool IsLong(FaultKind kind) { return kind == FaultKind::kStranger || kind == FaultKind::kSleep || IsCut(kind); }

bool IsPlanned(FaultKind kind) { return kind == FaultKind::kDrainHost || kind == FaultKind::kTermHost; }

std::vector<int> Victims(const Fault& fault, int ranks) {
  const int count = InfoOf(fault.kind).victims < 0 ? ranks - 1 : InfoOf(fault.kind).victims;
  if (fault.kind == FaultKind::kKillRank0) return {0};
  std::vector<int> left, victims;
  for (int rank = 0; rank < ranks; ++rank) left.push_back(rank);
  uint64_t choice = fault.choice;
  while (static_cast<int>(victims.size()) < count) victims.push_back(Draw(&left, &choice));
  return victims;
}

HostVictims VictimsOf(const Fault& fault, const WorldView& world) {
  HostVictims victims = Candidates(fault, world);
  return RanksBeside(victims.hosts, world).size() > victims.ranks.size() ? victims : HostVictims();
}

std::vector<std::pair<int, int>> CutsOf(const Fault& fault, int hosts) {
  std::vector<int> left;
  for (int host = 0; host < hosts; ++host) left.push_back(host);
  uint64_t choice = fault.choice;
  const int from = Draw(&left, &choice);
  std::vector<int> others = left;
  if (fault.kind != FaultKind::kCutHost) others = {Draw(&left, &choice)};
  std::vector<std::pair<int, int>> cuts;
  for (const int to : others) {
    cuts.emplace_back(from, to);
    if (fault.kind != FaultKind::kCutPath) cuts.emplace_back(to, from);
  }
  return cuts;
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
    case FaultKind::kKillHostBesideNewcomer:
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

// A third of the hosts come again at once.
absl::Duration FaultSchedule::Pause() {
  return random_() % 3 == 0 ? absl::ZeroDuration() : Between(absl::ZeroDuration(), absl::Seconds(3));
}

Fault FaultSchedule::Next() {
  if (round_.empty()) round_ = kinds_;
  const auto place = round_.begin() + static_cast<int64_t>(random_() % round_.size());
  Fault fault;
  fault.kind = *place;
  fault.choice = random_();
  fault.delay = DelayOf(fault.kind);
  if (HostsNeeded(fault.kind) > 0) fault.pause = Pause();
  round_.erase(place);
  return fault;
}

}  // namespace lockstep::elastic::chaos::internal
