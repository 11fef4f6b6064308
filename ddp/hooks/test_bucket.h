// Buckets for tests of communication hooks, like the buckets of DDP's reducer.

#ifndef LOCKSTEP_DDP_HOOKS_TEST_BUCKET_H_
#define LOCKSTEP_DDP_HOOKS_TEST_BUCKET_H_

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// The only bucket of a step, with concatenated copies of `gradients`. The i-th belongs to parameter "p<i>" unless
// `names` says otherwise.
inline GradBucket MakeBucket(const std::vector<at::Tensor>& gradients, std::vector<std::string> names = {}) {
  GradBucket bucket;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& gradient : gradients) flat.push_back(gradient.reshape({-1}));
  bucket.buffer = at::cat(flat);
  int64_t offset = 0;
  for (const at::Tensor& gradient : gradients) {
    bucket.gradients.push_back(bucket.buffer.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
    bucket.parameters.push_back(at::zeros_like(gradient));
    offset += gradient.numel();
  }
  while (names.size() < gradients.size()) names.push_back("p" + std::to_string(names.size()));
  bucket.names = std::move(names);
  return bucket;
}

// Returns the reduced gradients of `bucket`. Throws StatusError.
inline at::Tensor Reduce(const CommunicationHook& hook, GradBucket& bucket) {
  absl::StatusOr<at::Tensor> reduced = hook(bucket).Wait();
  ThrowIfError(reduced.status());
  return *reduced;
}

inline at::Tensor Reduce(const CommunicationHook& hook, GradBucket&& bucket) { return Reduce(hook, bucket); }

// Numbers that depend only on the rank and the step.
inline at::Tensor RandomGradient(at::IntArrayRef shape, int rank, int step, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(1000 * step + rank + 1), dtype);
}

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_TEST_BUCKET_H_
