// Carries faults out.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INJECTOR_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INJECTOR_H_

#include <stdint.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/elastic/chaos/internal/faults.h"
#include "lockstep/elastic/chaos/internal/job.h"
#include "lockstep/elastic/chaos/internal/step_watch.h"
#include "lockstep/elastic/chaos/internal/victim.h"

namespace lockstep::elastic::chaos::internal {

// Gives this process and its children a /dev/shm that nobody else sees, so small that it can be filled.
// FailedPrecondition: that is not allowed.
absl::Status MountPrivateDevShm();

// A fault that was carried out.
struct Injected {
  int ranks = 0;           // that trained before
  std::string victim;      // that was hit last: "rank 2"
  pid_t pid = 0;           // of it
  int64_t ns = 0;          // when the last part of the fault was done
  int64_t generation = 0;  // the job has recovered when a step is completed in a higher one
};

class Injector {
 public:
  // The arguments must outlive the object.
  Injector(Job* job, StepWatch* watch) : job_(*job), watch_(*watch) {}

  // Waits until enough ranks train, and hurts them. Errors: of StepWatch.
  absl::StatusOr<Injected> Inject(const Fault& fault);

 private:
  struct Target {
    Member member;
    Victim victim;
  };

  // A host, and all of its processes.
  struct HostTarget {
    int number = 0;
    std::vector<Victim> launcher, processes;
  };
  struct HostTargets {
    std::vector<HostTarget> hosts;
    std::vector<Target> ranks;
  };

  // Returns whether all of these processes could be found alive.
  bool FindMembers(const std::vector<Member>& members, std::vector<Target>* targets) const;
  absl::StatusOr<std::vector<Target>> FindTargets(const Fault& fault, int* ranks);
  absl::StatusOr<HostTargets> FindHosts(const Fault& fault, int* ranks);
  bool FindHost(int number, HostTarget* target) const;
  absl::StatusOr<Injected> InjectHosts(const Fault& fault);
  absl::Status KillBesideNewcomer(const Fault& fault, const HostTargets& targets, Injected* done);
  absl::Status Drain(const Fault& fault, const HostTarget& target, Injected* done);
  absl::Status AwaitDrained(const HostTarget& target, pid_t command);
  void KillHost(const Fault& fault, const HostTarget& target, Injected* done);
  absl::Status AwaitGone(const HostTarget& target);
  absl::Status Carry(const Fault& fault, const std::vector<Target>& targets, Injected* done);
  void Hit(const Target& target, int signal, Injected* done);
  void Hit(const std::vector<Target>& targets, int signal, Injected* done);
  absl::Status HitAgain(const Fault& fault, const Target& target, Injected* done);
  absl::Status HitBeside(const Fault& fault, const std::vector<Target>& targets, Injected* done);
  absl::Status Stop(const Fault& fault, const std::vector<Target>& targets, Injected* done);
  absl::Status Send(const Target& target, Order order, Injected* done);
  absl::Status FillDevShm(const Target& target, Injected* done);
  absl::Status LetSleep(const Target& target, Injected* done);
  absl::Status AwaitWhole();
  absl::StatusOr<Injected> Cut(const Fault& fault);
  absl::Status StartHostAgain(int number);
  absl::StatusOr<Injected> BringStranger(const Fault& fault);
  // The process that takes the place of a member that has ended, as early as at its start, or when it is about to join.
  absl::StatusOr<Victim> AwaitNext(const Member& member, bool joins);

  Job& job_;
  StepWatch& watch_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INJECTOR_H_
