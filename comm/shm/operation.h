// Operations of a shared-memory communicator, as requested by one rank.

#ifndef LOCKSTEP_COMM_SHM_OPERATION_H_
#define LOCKSTEP_COMM_SHM_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "lockstep/comm/shm/dtype.h"
#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::comm::shm {

enum class Kind : uint8_t {
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kTreeSum,
  kSend,
  kReceive,
};

const char* NameOf(Kind kind);

// Borrowed memory of this process.
struct Buffer {
  char* data = nullptr;
  size_t bytes = 0;
};
using Buffers = absl::InlinedVector<Buffer, 2>;

// A collective. All buffers are multiples of the dtype's size and aligned to it:
//
//   kBarrier        none
//   kBroadcast      buffers[0]: read on the root, written elsewhere
//   kAllReduce      buffers[0]: reduced in place
//   kReduce         buffers[0]: read; results[0], on the root only: written, may be buffers[0]
//   kAllGather      buffers[0]: read; results[r] becomes rank r's; each of the same size
//   kGather         as kAllGather, with results on the root only
//   kScatter        buffers[r], on the root only: for rank r; results[0]: written; each of the same size
//   kReduceScatter  buffers[r]: reduced for rank r; results[0]: written; each of the same size
//   kAllToAll       buffers[r]: for rank r; results[r]: from rank r; sizes may differ, also between ranks
//   kTreeSum        buffers: tree.counts[rank] inputs of the same size; results[0]: their sum over all ranks, may be one
//                   of them. All in memory of Allocate(); with tree.slices, results[0] is anywhere, and gets a slice
struct Request {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kBytes;
  Op op = Op::kSum;
  int root = 0;
  double factor = 1;                         // this rank's, for kPremulSum
  std::shared_ptr<const TreeSumOrder> tree;  // of a kTreeSum, the same on every rank
  Buffers buffers;
  Buffers results;
  std::shared_ptr<void> owner;  // keeps the buffers alive; released when the call is done
};

// The result of a Request. The status may be read once done() is true.
class Operation {
 public:
  virtual ~Operation() = default;

  bool done() const { return done_.load(std::memory_order_acquire); }
  const absl::Status& status() const { return status_; }

  // "all_reduce #12". Calls are counted for each communicator.
  virtual std::string Name() const = 0;

  // For a kReceive from any rank: the sender.
  int source() const { return source_; }

 protected:
  void Finish(absl::Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }
  int source_ = -1;

 private:
  absl::Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_OPERATION_H_
