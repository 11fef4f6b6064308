// Training on inputs that run out on some ranks before others.

#ifndef LOCKSTEP_DDP_JOIN_H_
#define LOCKSTEP_DDP_JOIN_H_

#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {

// The names and meanings are those of torch.distributed.algorithms.Join.
struct JoinOptions {
  // Gradients are divided by the number of all ranks, so ranks that still have inputs count less than they would. If
  // not: by the number of those that have.
  bool divide_by_initial_world_size = true;

  // False: Join does nothing, for inputs that are known to be even.
  bool enable = true;

  // Instead of keeping company, all ranks stop as soon as one has no inputs left: their next forward throws
  // OutOfRange, naming that rank, and its own Finish() returns it.
  bool throw_on_early_termination = false;
};

// A wrapped module of any type.
class Joinable {
 public:
  template <typename Net>
  Joinable(DistributedDataParallel<Net>& ddp)  // NOLINT(google-explicit-constructor): for lists of them
      : replica_(&internal::ReplicaOf(ddp)) {}

 private:
  friend class Join;
  internal::Replica* replica_;
};

// Between construction and Finish() the ranks' numbers of steps may differ: a rank that is done takes part in what the
// others' forward and backward passes exchange, with gradients of zero, until all are done.
//
//   ddp::Join join({ddp});
//   for (const Batch& batch : batches) {   // of any number on each rank
//     optimizer.zero_grad();
//     loss(ddp(batch)).backward();
//     optimizer.step();
//   }
//   LOCKSTEP_RETURN_IF_ERROR(join.Finish());   // all ranks have the model of one that was done last
//
// Every rank must create it, with the same modules, which it borrows, over one group, and the same options. Each step
// costs two small all_reduces more. In a step all of the modules must be used, in the order given, each one's backward
// before the next one's forward. Models whose forward
// has collectives of its own, such as SyncBatchNorm, need throw_on_early_termination.
class Join {
 public:
  explicit Join(std::initializer_list<Joinable> modules, const JoinOptions& options = {});

  // Ends it without keeping company, as when an exception passes.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // To be called once this rank has no inputs left. Blocks until no rank has. OutOfRange: see
  // throw_on_early_termination; on a rank whose forward threw that, the same again. Otherwise the errors of the group's
  // collectives.
  absl::Status Finish();

 private:
  absl::Status KeepCompany();
  void End();

  std::vector<internal::Replica*> replicas_;
  const JoinOptions options_;
  const std::shared_ptr<internal::JoinProgress> progress_;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_JOIN_H_
