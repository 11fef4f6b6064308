// A rank's socket to its launcher, for a rank that stays alive when other ranks end. The launcher tells it which ranks
// train together: a generation.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto link, launch::AgentLink::Open());
//   for (JoinOptions options;;) {
//     LOCKSTEP_ASSIGN_OR_RETURN(RankGeneration generation, link->Join(options));
//     // Form a group of generation.world_size ranks at generation.master_addr, and train. Leave the group if one of its
//     // collectives fails, or when link->order() says so. Then join the next generation.
//   }
//
// Without it, the launcher ends all ranks when one fails, and starts all of them again if it may. A program that calls
// Open() is treated otherwise:
//
// - If a rank is killed before all have joined, it is started again, and the others wait for it. If one exits with an
//   error, the launcher ends all ranks: the error is likely one that all make.
// - If a rank fails, the launcher tells the others kRegroupNow. When they have joined again, the next generation has
// the
//   ranks that are left, in their order. So rank 0 stays rank 0 while it lives.
// - The rank that failed is started again, and joins. The launcher tells the others kRegroupAfterStep, so no step is
// lost.
// - A rank that exits with 0 but has not called Finish() has failed too.
// - When all have called Finish(), nothing is started again. If a rank is killed then, the launcher says so and ends
// with
//   0. If it crashes or exits with an error, the launcher ends with its exit code when the others have ended.
// - One that exits with kResumableExitCode after Finish() has not failed. When all ranks have ended, the launcher ends
//   with that code.
// - A rank that does not leave a broken generation within JoinOptions::leave_timeout is killed, and counts as failed.
//
// This holds for the ranks of all nodes, if they meet by tcp or etcd-v3. A lost node is a failure of its ranks. With a
// static rendezvous of several nodes, Join() returns one generation, and a failure ends all ranks.
//
// No LibTorch. The launcher is //launch or launch::Spawn.

#ifndef LOCKSTEP_LAUNCH_LINK_AGENT_LINK_H_
#define LOCKSTEP_LAUNCH_LINK_AGENT_LINK_H_

#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/link/rank_generation.h"  // IWYU pragma: export

namespace lockstep::launch {

struct RankMessage;

// One thread at a time may call Join() and order(). ReportStep() and ReportStall() may be called by others meanwhile.
class AgentLink {
 public:
  enum class Order {
    kGoOn,
    kRegroupAfterStep,  // a process is ready, or a node leaves: leave the generation between two steps, and Join()
    kRegroupNow,        // the generation is broken: leave it, and Join()
  };

  // Returns whether Open() would find the control socket of this process: Lockstep's launch has started it, and nobody
  // has taken the socket.
  static bool IsOffered();

  // Takes the control socket of this process, which child processes then do not find any more, and tells the launcher
  // that this rank stays when another one fails. So call it as early as is possible. FailedPrecondition: no launcher
  // started this process, or the socket is taken already.
  static absl::StatusOr<std::unique_ptr<AgentLink>> Open();
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // Says that this rank has left its generation, and waits for the next one. The first generation has all ranks of the
  // launch, or max_ranks of them. DeadlineExceeded after `options.timeout`. Unavailable: the launcher has ended.
  // InvalidArgument: min_ranks is below 1 or above max_ranks, a time is negative, or `timeout` is below
  // `leave_timeout`.
  absl::StatusOr<RankGeneration> Join(const JoinOptions& options = {});

  // Returns the launcher's last order about the generation that this rank is in. Does not block. kRegroupNow too if the
  // launcher has ended.
  Order order();

  // Why, in a sentence; "" for kGoOn.
  const std::string& reason() const { return reason_; }

  // Becomes readable when order() may have changed. Call order() before the first wait: Join() reads what has come.
  int fd() const { return fd_.get(); }

  // Tells the launcher that this rank has completed all steps before number `step`, which is never lower than before. A
  // job whose generations end one after another without a step is ended. Cheap: at most ten packets a second, and the
  // first one of a generation at once. Thread-safe.
  void ReportStep(int64_t step);

  // Tells the launcher why this rank waits in a call of its group for long: `why`, a sentence, and the first rank that
  // keeps the others waiting, or -1. Call it every 10 s or so while that lasts, on any rank. Once no step has been
  // completed for 30 s, the launcher says why, and `launch status` does. With --stall_timeout, the rank is ended, and
  // another process takes its place. Does not block. Thread-safe.
  void ReportStall(const std::string& why, int rank);

  // Tells the launcher that the job must end, as when an error comes again and again. The launcher ends all ranks, and
  // names `reason`, a sentence, as the cause. This rank should end too. Does not block for long. With a static
  // rendezvous of several nodes the launcher does not listen, but ends all ranks when this one fails.
  void EndJob(const std::string& reason);

  // Tells the launcher how the training failed on this rank, which is about to exit with an error because of that. So
  // the next generation gets `failure` rather than the exit. Does not block for long.
  void ReportFailure(const StepFailure& failure);

  // Tells the launcher that this rank cannot work with the others, and that another process in its place could not
  // either, as when it has another model. Exit then: the others go on, and no other process is started. Does not block
  // for long.
  void ReportUnfit();

  // Tells the launcher that this rank has done its work. Call it when no rank needs this one any more. `all_have`: and
  // so have all ranks of its generation, as they have agreed in a last collective. A job is complete when all ranks of
  // a generation have said that they have done their work, or when one has said that all have and none is left that
  // goes on. Then no process is started again. Join() says that there is more to do. Does not block for long.
  void Finish(bool all_have = false);

 private:
  explicit AgentLink(UniqueFd fd);
  absl::Status Send(const std::string& text, int64_t deadline);
  void SendLastWords(const RankMessage& message);
  absl::Status Read();

  struct Steps;  // what ReportStep() remembers
  const UniqueFd fd_;
  int64_t generation_ = 0;
  bool joined_ = false;  // whether next_ is a generation that Join() has not returned yet
  RankGeneration next_;
  Order order_ = Order::kGoOn;
  std::string reason_;
  const std::unique_ptr<Steps> steps_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_LINK_AGENT_LINK_H_
