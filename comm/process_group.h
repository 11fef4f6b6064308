// The ranks that train together, and the collectives among them.

#ifndef LOCKSTEP_COMM_PROCESS_GROUP_H_
#define LOCKSTEP_COMM_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/work.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::comm {

struct InitOptions {
  // "auto", a backend's name, or one a device type: "cpu:gloo,cuda:nccl". Only those linked into the program are known.
  std::string backend = "auto";

  // Where the ranks meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://host:port (rank 0 listens there), or file:///path
  // (a file that all ranks see and that does not exist yet).
  std::string init_method = "env://";

  // -1: RANK and WORLD_SIZE of the environment.
  int rank = -1;
  int world_size = -1;

  // The longest that meeting, and later any one collective, may take.
  absl::Duration timeout = absl::Minutes(30);
};

// kAvg is the sum divided by the world size; for floating-point and complex tensors only.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax };

// A rank's handle on its group.
//
//   absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> group = comm::InitProcessGroup({});
//   if (!group.ok()) return group.status();
//   at::Tensor loss = ...;
//   absl::Status status = (*group)->AllReduce(loss, comm::ReduceOp::kAvg);
//
// Every rank of the group must call the same collectives in the same order, with tensors of the same shape and dtype.
// Tensors must be dense and contiguous, of a device that the group has a backend for; a collective that cannot be as
// asked is refused with InvalidArgument before anything is sent. Each collective has a blocking form and an
// asynchronous one that returns a Work.
//
// Errors name this rank, the collective with its sequence number, and the tensor. After the first error of a collective
// the ranks may be out of step: the group is failed and every later call returns that first error at once.
// DeadlineExceeded: the timeout passed. Unavailable: a connection broke, as when a rank dies.
//
// Threads: calls from several threads are safe as such, but the order of collectives must be the same on every rank, so
// one thread should issue them. Destroying the group with collectives under way waits for them, except in a failed
// group, whose backend is left behind (Gloo cannot abort: its destructor would block until the collective's own
// timeout).
class ProcessGroup {
 public:
  // A group over backends made elsewhere, one a device type. `master` is kept alive as long as the group, and may be
  // null.
  static std::unique_ptr<ProcessGroup> FromBackends(
      c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::Store> master,
      std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>> backends);
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // For small facts between ranks; shared by all of them, its keys prefixed for this group.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  // A key for the store that no other call returns: "`purpose`/n" for the n-th call, so the same on every rank if all
  // call it in one order.
  std::string NextKey(absl::string_view purpose);

  // What root's tensor holds, in every rank's.
  absl::Status Broadcast(const at::Tensor& tensor, int root);
  Work BroadcastAsync(const at::Tensor& tensor, int root);

  // The reduction over all ranks, in place, the same bits on every rank.
  absl::Status AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Work AllReduceAsync(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // outputs[r] becomes rank r's input. `outputs`: one tensor of the input's shape and dtype a rank.
  absl::Status AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input);
  Work AllGatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input);

  // Returns when every rank has called it.
  absl::Status Barrier();
  Work BarrierAsync();

  // The first error of a collective, or OK.
  absl::Status failure() const;

 private:
  ProcessGroup() = default;

  absl::StatusOr<c10d::Backend*> BackendFor(const at::Tensor& tensor) const;
  absl::Status CheckRoot(int root) const;
  Work Start(absl::string_view operation, const at::Tensor& tensor, absl::Status valid,
             const std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>& start,
             std::function<void()> after = nullptr);
  Work Launch(std::string name, const std::function<c10::intrusive_ptr<c10d::Work>()>& start,
              std::function<void()> after);

  int rank_ = 0;
  int size_ = 1;
  // Destroyed in reverse: backends, then the store they met in, then the server behind it.
  c10::intrusive_ptr<c10d::Store> master_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>> backends_;
  std::shared_ptr<internal::GroupFailure> failure_;
  std::atomic<int64_t> sequence_{0};
  std::atomic<int64_t> keys_{0};
};

// Meets the other ranks and makes the group. Blocks until all have called it, for options.timeout at most. Every error
// names the rank: InvalidArgument for bad options or environment variables, NotFound for a backend that is not linked,
// FailedPrecondition for a port in use, AlreadyExists for a rank number given twice, DeadlineExceeded naming the ranks
// that did not come.
absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(const InitOptions& options);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_PROCESS_GROUP_H_
