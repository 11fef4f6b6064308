#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ALL_REDUCE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ALL_REDUCE_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace lockstep::comm::hierarchical::internal {

// The backends that one rank needs for an all_reduce over several hosts. Two within the host, since one rank may be in
// the last phase of a call where another has begun the next call.
struct Levels {
  c10::intrusive_ptr<c10d::Backend> inward;   // among the ranks of the host, for the first phase
  c10::intrusive_ptr<c10d::Backend> across;   // among the column; null on a rank that is in none
  c10::intrusive_ptr<c10d::Backend> outward;  // among the ranks of the host, for the last phase
  bool even = true;                           // every host has as many ranks
  int size = 1;                               // of the whole group
};

// One all_reduce on its way. With as many ranks on every host each rank reduces a part of the tensor within its host,
// then with its column, and the parts are gathered; otherwise the first rank of each host does it for all of its host.
// Each phase is started when the one before is done, by whoever waits or asks.
class AllReducePhases {
 public:
  // Starts the first phase. Throws the backend's exceptions.
  AllReducePhases(const Levels& levels, at::Tensor tensor, c10d::ReduceOp op);

  // Advances as far as possible without waiting. Returns whether all phases are done.
  bool Test();
  // Throws the backend's exceptions, including its time-out.
  void Finish(std::chrono::milliseconds timeout);

 private:
  enum class Phase { kInward, kAcross, kOutward, kDone };

  void Next();
  void StartInward();
  void StartAcross();
  void StartOutward();

  const Levels& levels_;
  const at::Tensor tensor_;
  const bool average_;
  c10d::ReduceOp op_;
  at::Tensor flat_;  // the tensor's elements; a padded copy if they do not divide into parts
  at::Tensor part_;  // this rank's
  Phase phase_ = Phase::kInward;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ALL_REDUCE_H_
