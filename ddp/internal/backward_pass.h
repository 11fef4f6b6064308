// The progress of one backward over the buckets: which gradients are in, which buckets have started, and what failed.

#ifndef LOCKSTEP_DDP_INTERNAL_BACKWARD_PASS_H_
#define LOCKSTEP_DDP_INTERNAL_BACKWARD_PASS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::ddp::internal {

// Keeps account of a backward; it does not move gradients. A parameter's gradient becomes ready once. A bucket is full
// when the gradients of all its parameters are ready. Full buckets start in the order of their numbers, except for the
// delayed one, and their results are delivered in that order.
//
//   pass.Begin(backward);
//   ThrowIfError(pass.MarkReady(parameter));                    // as gradients come
//   while (pass.NextToStart() != BackwardPass::kNone) {
//     start(pass.NextToStart());
//     pass.MarkStarted(pass.NextToStart());
//   }
//   ...
//   pass.End();
//   ThrowIfError(pass.TakeError());                             // before the next forward
//
// Parameters and buckets are identified by their numbers.
class BackwardPass {
 public:
  static constexpr int kNone = -1;

  // `names`: of the parameters, for errors, which begin with the rank.
  BackwardPass(int rank, std::vector<std::string> names);

  // Each bucket's parameters. The buckets from `ordered` on, of which there is one at most, are delayed.
  void SetBuckets(const std::vector<std::vector<int>>& buckets, int ordered);

  bool active() const { return active_; }
  // `backward`: autograd's number of it.
  void Begin(int backward) {
    active_ = true;
    backward_ = backward;
  }

  // The number of the present backward, or else of the last one.
  int backward() const { return backward_; }

  // The backward is over: forgets everything except the error.
  void End();

  // The parameter's gradient is in, or will not come. FailedPrecondition if it was ready already, or its bucket has
  // started.
  absl::Status MarkReady(int parameter);
  bool ready(int parameter) const;
  std::vector<int> NotReady() const;

  int bucket_of(int parameter) const;
  bool full(int bucket) const;

  // The bucket that is to start now: it is full, and those before it have started. kNone if there is none.
  int NextToStart() const;

  // The delayed bucket, full or not, until it has started; otherwise kNone.
  int DelayedToStart() const {
    return ordered_ < static_cast<int>(pending_.size()) && !delayed_started_ ? ordered_ : kNone;
  }

  void MarkStarted(int bucket);
  bool started(int bucket) const { return bucket < ordered_ ? bucket < started_ : delayed_started_; }

  // The first bucket whose result has not been delivered, and the one after the last that has started in order.
  int next_delivery() const { return delivered_; }
  int next_start() const { return started_; }
  void MarkDelivered() { ++delivered_; }

  // Errors of this backward. Fail() keeps the first until TakeError() returns it.
  void Fail(const absl::Status& error) { error_.Update(error); }
  bool failed() const { return !error_.ok(); }
  absl::Status TakeError();

  // FailedPrecondition naming the parameters that are not ready.
  absl::Status NoGradient() const;

  // FailedPrecondition: the delayed `parameter` was not ready when the gradient of `trigger` was computed.
  absl::Status NotBefore(int parameter, int trigger) const;

 private:
  absl::Status TooLate(int parameter) const;

  const int rank_;
  const std::vector<std::string> names_;
  int ordered_ = 0;
  std::vector<int> bucket_of_;  // of each parameter
  std::vector<int> sizes_;      // of each bucket
  bool active_ = false;
  int backward_ = kNone;
  std::vector<char> ready_;   // of each parameter
  std::vector<int> pending_;  // of each bucket: parameters that are not ready
  int started_ = 0;           // buckets that have started in order
  bool delayed_started_ = false;
  int delivered_ = 0;
  absl::Status error_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BACKWARD_PASS_H_
