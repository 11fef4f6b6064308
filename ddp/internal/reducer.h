#ifndef LOCKSTEP_DDP_INTERNAL_REDUCER_H_
#define LOCKSTEP_DDP_INTERNAL_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/internal/parameter_check.h"

namespace torch::autograd {
struct Node;
}

namespace lockstep::ddp::internal {

struct ReducerOptions {
  int64_t first_bucket_bytes = 0;  // limit of the first bucket of a rebuilt layout, and of the others
  int64_t bucket_bytes = 0;
  bool gradient_as_bucket_view = false;
};

// Averages gradients over the ranks while backward is still computing others.
//
// A hook on each parameter's gradient accumulator copies the gradient, divided by the world size, into its place in a
// bucket. When a bucket is full and those before it have started, its all_reduce starts; at the end of backward the
// results are waited for and copied back (or, with gradient_as_bucket_view, are the gradients). The first backward uses
// one bucket; the next forward lays buckets out anew in the order in which rank 0's gradients became ready, as
// PyTorch's DistributedDataParallel does (Li et al., PyTorch Distributed, VLDB 2020).
//
// One thread uses it at a time. Errors are thrown as StatusError, since backward is LibTorch's.
class Reducer {
 public:
  // `parameters`: those that require gradients, each once. They and `group` (borrowed) outlive the reducer.
  Reducer(std::vector<NamedTensor> parameters, comm::ProcessGroup* group, ReducerOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // To be called before every forward that computes gradients. Throws what was wrong with the last backward:
  // FailedPrecondition naming the parameters that got no gradient, or those whose autograd node has been replaced (as
  // by module->to(dtype) after wrapping).
  void PrepareForward();

  // The parameters of each bucket, in the order in which the buckets are reduced.
  std::vector<std::vector<int>> BucketLayout() const;

 private:
  struct Bucket;
  class Hook;

  void InstallHook(int index);
  void BuildBuckets(const std::vector<std::vector<int>>& layout);
  void RebuildBuckets();
  std::vector<std::vector<int>> AgreeOnLayout(const std::vector<std::vector<int>>& mine);
  void AbandonBackward();
  void CheckHooks() const;

  void BeginBackward();
  void MarkReady(int index);
  void CopyIntoBucket(int index);
  void StartFullBuckets();
  void FinishBackward();
  void EndBackward(bool complete);
  void CopyOutOfBucket(int index);
  absl::Status NoGradientError() const;

  // Where a parameter's gradient lives.
  struct Slot {
    int bucket = 0;
    at::Tensor view;  // of the bucket, with the parameter's shape
    bool ready = false;
  };

  const std::vector<NamedTensor> parameters_;
  comm::ProcessGroup* const group_;
  const ReducerOptions options_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // kept alive: the hooks are theirs
  std::vector<uintptr_t> hooks_;

  std::vector<Bucket> buckets_;
  std::vector<Slot> slots_;  // one a parameter
  bool in_backward_ = false;
  size_t next_bucket_ = 0;        // the first whose all_reduce has not started
  std::vector<int> ready_order_;  // of the first backward
  bool rebuilt_ = false;
  absl::Status last_backward_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REDUCER_H_
