#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIPELINE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIPELINE_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/comm/hierarchical/internal/exchange.h"
#include "lockstep/comm/hierarchical/internal/levels.h"
#include "lockstep/comm/hierarchical/internal/piece.h"

namespace lockstep::comm::hierarchical::internal {

// The all_reduces and Exchanges of one rank, in pieces that go through the phases one behind the other. Each phase
// has a thread, so calls progress whether or not a thread waits for them:
//
//   inward   reduces within the host and sends to the other hosts
//   across   receives from the other hosts, and reduces for an all_reduce; with more than two hosts it sends the results
//   outward  with more than two hosts receives the results; passes the piece on within the host
//
// A piece is passed on before it is sent, so that ranks that send to each other receive, too, however little the system
// buffers. The across thread changes what the inward thread sends only when it is sent.
//
// With two hosts the across thread does the outward phase too. Every rank takes calls and pieces in the same order.
// Hosts are added in order, so every rank gets the same bits.
//
// After the first error the pipeline has failed: calls under way and later ones end with that error. Thread-safe.
class Pipeline {
 public:
  // ResourceExhausted: the threads cannot start.
  static absl::StatusOr<std::shared_ptr<Pipeline>> Create(Levels levels, std::chrono::milliseconds timeout);
  ~Pipeline();

  const Levels& levels() const { return levels_; }

  // Starts an all_reduce. Throws c10::NotImplementedError if a tensor's dtype does not have the reduction.
  std::shared_ptr<Call> Push(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op);
  // Starts an exchange among columns. Needs levels().even.
  std::shared_ptr<Call> Push(std::unique_ptr<Exchange> exchange);
  bool Test(const Call& call);
  // Throws the call's error, or a DistBackendError after the time-out; 0 means the pipeline's own.
  void Finish(const Call& call, std::chrono::milliseconds timeout);
  // Waits for all calls.
  void FinishAll();

  // Ends all calls under way, and later ones. Does not wait.
  void Abort();
  // Aborts, and waits for the threads.
  void Stop();

 private:
  enum Phase { kAcross, kOutward, kQueues };  // the phases that a queue leads to

  Pipeline(Levels levels, std::chrono::milliseconds timeout);
  absl::Status StartThreads();
  void RunInward();
  void RunThread(Phase phase, const std::function<void(Piece&)>& take);
  std::shared_ptr<Call> Enqueue(std::shared_ptr<Call> call);
  bool NextCall(std::shared_ptr<Call>& call);
  bool NextPiece(Phase phase, Piece& piece);
  void PassOn(Phase phase, Piece piece);
  void Fail(std::exception_ptr error);
  bool IsStoppedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || failure_; }

  void ExchangeInward(const std::shared_ptr<Call>& call);
  void Inward(Piece& piece);
  void SendShares(const Piece& piece);
  void Across(Piece& piece);
  void AwaitSent(const Piece& piece);
  void SendResults(const Piece& piece);
  void Outward(Piece& piece);

  Levels levels_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::thread> threads_;
  std::vector<char> scratch_;  // of the across thread
  uint64_t made_ = 0;          // by the inward thread: pieces of all_reduces

  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // not begun
  std::list<Piece> pieces_[kQueues] ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Call> last_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the last piece whose shares are sent
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIPELINE_H_
