// Which fault comes next, and whom it hits. Pure.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_FAULTS_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_FAULTS_H_

#include <stdint.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::elastic::chaos::internal {

enum class FaultKind {
  kKill,                // SIGKILL
  kKillRank0,           // the same, to the rank that serves the others
  kKillTwo,             // two ranks at once
  kKillAllButOne,       // at once
  kKillInRegroup,       // a second rank while the others regroup after the first
  kKillAtStart,         // a rank, and the process that takes its place, just after its start
  kKillNewcomer,        // the process that takes its place, while it joins
  kKillBesideNewcomer,  // another rank, while a newcomer joins and is healed
  kSegv,                // SIGSEGV
  kAbort,               // SIGABRT
  kStop,                // SIGSTOP, and SIGCONT soon after
  kStopAndKill,         // a rank is stopped when another one dies, and goes on before it must have left
  kStopTooLong,         // a rank is stopped when another one dies, for longer than it may
  kExit0,               // in the middle of the training
  kExit1,
  kThrow,           // an exception in the step
  kOutOfMemory,     // RLIMIT_AS, and an allocation in the step
  kFewDescriptors,  // a rank has none left when another one dies
  kFullDevShm,      // /dev/shm has no space left when a rank dies
  // Faults of hosts. A launcher has three processes; when one of them dies, all processes of the host die.
  kKillHost,                // SIGKILL of a process of a launcher
  kKillLeader,              // the same, of the launcher that leads the others
  kKillHostAndRank,         // the same, and a rank of another host at once
  kKillHostBesideNewcomer,  // a second launcher, while the first one joins again
  kKillAllHostsButOne,      // all launchers but one, and all its ranks but one
  kDrainHost,               // `launch drain`: the host leaves after a step
  kTermHost,                // SIGTERM to a launcher, which does the same
  // See IsLong().
  kStranger,  // a launcher of another job comes to this one
  kSleep,     // a rank sleeps in its step
  kCutPath,   // packets from one network host to another one are lost
  kCutPair,   // packets between two of them
  kCutHost,   // packets between one of them and all others
};

// All kinds, in their order.
const std::vector<FaultKind>& AllFaultKinds();

// Such as "kill rank 0".
std::string FaultName(FaultKind kind);

// The least number of ranks that this fault needs: one rank always stays, because the state is in its memory.
int RanksNeeded(FaultKind kind);

// The least number of hosts. 0: the fault hits ranks only.
int HostsNeeded(FaultKind kind);

// Returns whether the fault may end several ranks before the others have regrouped.
bool EndsSeveralRanks(FaultKind kind);

// Returns whether the fault takes long, up to a minute.
bool IsLong(FaultKind kind);

// Returns whether the fault needs network hosts.
bool IsCut(FaultKind kind);

// Returns whether no step is repeated because of the fault.
bool IsPlanned(FaultKind kind);

// A fault's targets and time.
struct Fault {
  FaultKind kind = FaultKind::kKill;
  uint64_t choice = 0;   // which ranks or hosts
  absl::Duration delay;  // between its two parts, if it has two
  absl::Duration pause;  // until the hosts that it hits are started again, if it hits hosts
};

// The ranks that `fault` hits among `ranks`, which are at least RanksNeeded(). Never all of them.
std::vector<int> Victims(const Fault& fault, int ranks);

// The hosts and ranks of a training.
struct WorldView {
  std::vector<int> host_of_rank;
  std::vector<int> hosts;  // whose launchers run; the ranks of some may not train yet
  int spared = -1;         // the host that must live; -1: none
  int leader = -1;         // the host whose launcher leads the others; -1: unknown
};

struct HostVictims {
  std::vector<int> hosts;  // in the order in which they are hit
  std::vector<int> ranks;  // of other hosts
};

// The hosts and ranks that `fault`, which hits hosts, hits. At least one rank is left. No hosts: it cannot be done now.
HostVictims VictimsOf(const Fault& fault, const WorldView& world);

// From which host to which one packets are lost by `fault`, of hosts 0, 1, ... `hosts` - 1.
std::vector<std::pair<int, int>> CutsOf(const Fault& fault, int hosts);

// Draws faults from a seed. Equal seeds and kinds give equal faults on every machine. Each kind comes once before any
// comes again.
class FaultSchedule {
 public:
  // `leave_timeout` is how long a rank may take to leave a broken generation.
  FaultSchedule(uint64_t seed, std::vector<FaultKind> kinds, absl::Duration leave_timeout);

  Fault Next();

 private:
  absl::Duration DelayOf(FaultKind kind);
  absl::Duration Pause();
  absl::Duration Between(absl::Duration least, absl::Duration most);

  std::mt19937_64 random_;
  const std::vector<FaultKind> kinds_;
  const absl::Duration leave_timeout_;
  std::vector<FaultKind> round_;  // what is left of it
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_FAULTS_H_
