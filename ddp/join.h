// Training with uneven inputs, which run out on some ranks before others.

#ifndef LOCKSTEP_DDP_JOIN_H_
#define LOCKSTEP_DDP_JOIN_H_

#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {

// Names and meanings are the same as in torch.distributed.algorithms.Join.
struct JoinOptions {
  // True: gradients are divided by the number of all ranks. False: by the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;

  // False: Join does nothing. Use this if you know that the inputs are even.
  bool enable = true;

  // All ranks stop as soon as one has no inputs left. On the other ranks the next forward throws OutOfRange, naming
  // that rank, and that rank's Finish() returns it.
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

// Between construction and Finish() the ranks may run different numbers of steps. A rank that is done takes part in the
// collectives of the others' forward and backward passes, with gradients of zero, until all are done.
//
//   ddp::Join join({ddp});
//   for (const Batch& batch : batches) {   // any number on each rank
//     optimizer.zero_grad();
//     loss(ddp(batch)).backward();
//     optimizer.step();
//   }
//   LOCKSTEP_RETURN_IF_ERROR(join.Finish());   // all ranks have the model of a rank that finished last
//
// With Options::virtual_ranks, a virtual rank that is done counts as zero. Tell VirtualRanks() which of this rank's
// virtual ranks have inputs left, and call Finish() once none has:
//
//   for (int64_t step = 0; !(left = WithInputs()).empty(); ++step) {
//     optimizer.zero_grad();
//     for (const int virtual_rank : ddp.VirtualRanks(step, left)) loss(ddp(NextBatch(virtual_rank))).backward();
//     optimizer.step();
//   }
//   LOCKSTEP_RETURN_IF_ERROR(join.Finish());
//
// Every rank must create it with the same modules, over one group, and with the same options. The modules are borrowed.
// Each step costs two small all_reduces more. In each step, all modules must be used in the given order, and each one's
// backward must come before the next one's forward. If a model's forward makes collectives, such as SyncBatchNorm's,
// set throw_on_early_termination.
class Join {
 public:
  explicit Join(std::initializer_list<Joinable> modules, const JoinOptions& options = {});

  // Without Finish(), for example if an exception passes, ends the Join without taking part in the others' steps.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Call it once this rank has no inputs left. Blocks until no rank has any. OutOfRange: see
  // throw_on_early_termination; if this rank's forward threw it, returns the same error again. Other errors come
  // from the group's collectives.
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
