// A rank that stays alive when other ranks end. The launcher tells it which ranks train together: a generation.
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
// - If a rank fails, the launcher tells the others kRegroupNow. When they have joined again, the next generation has the
//   ranks that are left, in their order. So rank 0 stays rank 0 while it lives.
// - The rank that failed is started again, and joins. The launcher tells the others kRegroupAfterStep, so no step is lost.
// - A rank that exits with 0 but has not called Finish() has failed too.
// - When all have called Finish(), nothing is started again. If a rank is killed then, the launcher says so and ends with
//   0. If it crashes or exits with an error, the launcher ends with its exit code when the others have ended.
// - One that exits with kResumableExitCode after Finish() has not failed. When all ranks have ended, the launcher ends
//   with that code.
// - A rank that does not leave a broken generation within JoinOptions::leave_timeout is killed, and counts as failed.
//
// This holds for the ranks of all nodes, if they meet by tcp or etcd-v3. A lost node is a failure of its ranks. With a
// static rendezvous of several nodes, Join() returns one generation, and a failure ends all ranks.
//
// No LibTorch. The launcher is //tools/launch or launch::Spawn.

#ifndef LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_
#define LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_

#include <stdint.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::launch {

namespace internal {
struct RankMessage;
}

// The exit code of a program whose state is saved, and that can go on when it is started again: EX_TEMPFAIL of
// sysexits.h.
inline constexpr int kResumableExitCode = 75;

// The ranks that train together until one of them ends or another one comes, from one rank's view.
struct RankGeneration {
  int64_t number = 0;  // from 1; each is higher than the one before
  int rank = 0;        // from 0 to world_size - 1
  int world_size = 1;
  int local_rank = 0;        // as LOCAL_RANK: a rank keeps it. It may be larger than the number of ranks on the node
  int local_world_size = 1;  // the ranks of this generation on the node
  int node_rank = 0;
  int nnodes = 1;
  std::string master_addr;  // of rank 0
  int master_port = 0;
  // On rank 0, if the launcher has bound the port: a socket that listens there. The caller closes it. Otherwise -1.
  int listen_fd = -1;
  std::string reason;  // why the generation before ended, in a sentence about a rank; "" for the first one
};

struct JoinOptions {
  int min_ranks = 1;  // the smallest world size. The largest value of all ranks counts
  int max_ranks = 0;  // the largest; other processes wait to take a rank's place. The smallest counts; 0: any number
  int max_restarts = -1;  // of failed ranks, in the job's life, unless the launcher has --max_restarts; -1: any number
  absl::Duration leave_timeout = absl::Seconds(10);  // for leaving a broken generation
  absl::Duration timeout = absl::Minutes(30);        // for this call; at least leave_timeout
  std::string reason;  // why this rank has left its generation, for the others and for people; "": it was told to
};

// One thread at a time may call Join() and order(). ReportStep() and ReportStall() may be called by others meanwhile.
class AgentLink {
 public:
  enum class Order {
    kGoOn,
    kRegroupAfterStep,  // another rank is ready: leave the generation between two steps, and Join()
    kRegroupNow,        // the generation is broken: leave it, and Join()
  };

  // Takes the control socket of this process, which child processes then do not find any more, and tells the launcher
  // that this rank stays when another one fails. So call it as early as is possible. FailedPrecondition: no launcher
  // started this process, or the socket is taken already.
  static absl::StatusOr<std::unique_ptr<AgentLink>> Open();
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // Says that this rank has left its generation, and waits for the next one. The first generation has all ranks of the
  // launch, or max_ranks of them. DeadlineExceeded after `options.timeout`. Unavailable: the launcher has ended.
  // InvalidArgument: min_ranks is below 1 or above max_ranks, a time is negative, or `timeout` is below `leave_timeout`.
  absl::StatusOr<RankGeneration> Join(const JoinOptions& options = {});

  // What the launcher has said last about the generation that this rank is in. Does not block. kRegroupNow too if the
  // launcher has ended.
  Order order();

  // Why, in a sentence; "" for kGoOn.
  const std::string& reason() const { return reason_; }

  // Becomes readable when order() may have changed. Call order() before the first wait: Join() reads what has come.
  int fd() const { return fd_; }

  // Tells the launcher that this rank has completed `step`, which is never lower than before. A job whose generations
  // end one after another without a step is ended. Cheap: at most ten packets a second, and the first one of a
  // generation at once. Thread-safe.
  void ReportStep(int64_t step);

  // Tells the launcher why this rank waits in a call of its group for long: `why`, a sentence, and the first rank that
  // keeps the others waiting, or -1. Call it every 10 s or so while that lasts, on any rank. Once no step has been
  // completed for 30 s, the launcher says why, and `launch status` does. With --stall_timeout, the rank is ended, and
  // another process takes its place. Does not block. Thread-safe.
  void ReportStall(const std::string& why, int rank);

  // Tells the launcher that the job must end, as when an error comes again and again. The launcher ends all ranks, and
  // names `reason`, a sentence, as the cause. This rank should end too. Does not block for long. With a static rendezvous
  // of several nodes the launcher does not listen, but ends all ranks when this one fails.
  void EndJob(const std::string& reason);

  // Tells the launcher that this rank has done its work. Call it when no rank needs this one any more. `all_have`: and so
  // have all ranks of its generation, as they have agreed in a last collective. A job is complete when all ranks of a
  // generation have said that they have done their work, or when one has said that all have and none is left that goes
  // on. Then no process is started again. Join() says that there is more to do. Does not block for long.
  void Finish(bool all_have = false);

 private:
  explicit AgentLink(int fd);
  absl::Status Send(const std::string& text, int64_t deadline);
  void SendLastWords(const internal::RankMessage& message);
  absl::Status Read();

  struct Steps;  // what ReportStep() remembers
  const int fd_;
  int64_t generation_ = 0;
  bool joined_ = false;  // whether next_ is a generation that Join() has not returned yet
  RankGeneration next_;
  Order order_ = Order::kGoOn;
  std::string reason_;
  const std::unique_ptr<Steps> steps_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_
