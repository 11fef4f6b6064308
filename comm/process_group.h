// The ranks that train together, and the collectives among them.

#ifndef LOCKSTEP_COMM_PROCESS_GROUP_H_
#define LOCKSTEP_COMM_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::comm {

class ProcessGroup;

namespace internal {
struct GroupParts;
struct Making;
const std::shared_ptr<GroupState>& StateOf(const ProcessGroup& group);
}  // namespace internal

using BackendMap = std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>>;

// One send or receive of ProcessGroup::BatchIsendIrecv().
struct P2POp {
  enum class Kind { kSend, kRecv };
  Kind kind = Kind::kSend;
  at::Tensor tensor;
  int peer = 0;
  int tag = 0;
};

// A rank's handle on its group.
//
//   absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> group = comm::InitProcessGroup({});
//   if (!group.ok()) return group.status();
//   at::Tensor loss = ...;
//   absl::Status status = (*group)->AllReduce(loss, comm::ReduceOp::kAvg);
//
// Every rank of the group must call the same collectives in the same order, with tensors of the same shape and dtype
// where a comment does not say otherwise. Each collective has a blocking form and an asynchronous one that returns a
// Work. Tensors must be dense and contiguous, of a device that the group has a backend for, and stay untouched until
// the Work is done. A call that cannot be as asked is refused with InvalidArgument, or Unimplemented where the backend
// does not do it for the dtype, before anything is sent; the group goes on.
//
// Every call has an id, "all_reduce #12", that its errors and traces (VLOG(2)) share; sends and receives are counted
// apart from collectives. Errors name this rank, the id and the tensor. After the first error in mid-call the ranks may
// be out of step: the group is failed, calls under way end, and every later call returns that first error at once.
// DeadlineExceeded: the timeout passed. Unavailable: a connection broke or a rank died. Aborted: a rank said so.
//
// Threads: calls from several threads are safe as such, and failure(), Abort() and a Work's own methods may come from
// any. But the order of collectives must be the same on every rank, and two threads' calls are issued in no particular
// order: let one thread issue them, hold a lock that gives every rank one order, or use a group for each thread.
//
// Destroying the group with calls under way waits for them, by the timeout at the latest; of a failed group it returns
// within a second. A group destroyed by an exception's stack unwinding tells the other ranks so.
class ProcessGroup {
 public:
  static constexpr int kAnySource = -1;

  // A group over c10d backends made elsewhere, one a device type, all of one rank and size; `store`, which all ranks
  // share, is for NextKey(), MonitoredBarrier() and the group's users. Nothing is exchanged, and no other rank is told
  // of a failure, so Python ranks may be among them. InvalidArgument for backends that do not fit together.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> FromC10d(BackendMap backends,
                                                                c10::intrusive_ptr<c10d::Store> store,
                                                                absl::Duration timeout = absl::Minutes(30));

  // The same for backends that are known to fit together and to keep what comm/backend.h promises; throws if they do
  // not. `master` is kept alive as long as the group, and may be null.
  static std::unique_ptr<ProcessGroup> FromBackends(c10::intrusive_ptr<c10d::Store> store,
                                                    c10::intrusive_ptr<c10d::Store> master, BackendMap backends,
                                                    absl::Duration timeout = absl::Minutes(30));
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // "world", or a sub-group's name.
  const std::string& name() const;
  absl::Duration timeout() const;

  // For small facts between ranks; shared by all of them, its keys prefixed for this group.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  // Whether every rank is known to be a Lockstep rank, so that they may agree on things through the store. False where
  // Python ranks are in the group, and for a group that FromC10d() made.
  bool OnlyLockstepRanks() const;

  // A key for the store that no other call returns: "`purpose`/n" for the n-th call, so the same on every rank if all
  // call it in one order.
  std::string NextKey(absl::string_view purpose);

  // What root's tensor holds, in every rank's.
  absl::Status Broadcast(const at::Tensor& tensor, int root);
  Work BroadcastAsync(const at::Tensor& tensor, int root);

  // The reduction over all ranks, in place, the same bits on every rank.
  absl::Status AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Work AllReduceAsync(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // The same for several tensors of one dtype and device, as one call.
  absl::Status AllReduceCoalesced(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::kSum);
  Work AllReduceCoalescedAsync(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::kSum);

  // The sum over all ranks of each one's tensor, of floats or doubles, times its own `factor`, in place: PyTorch's
  // PREMUL_SUM. The factor and the products are rounded to the dtype. Where SharesMemory(), CPU tensors are multiplied
  // in the pass that sums them, elsewhere in one before.
  absl::Status AllReducePremulSum(const at::Tensor& tensor, double factor);
  Work AllReducePremulSumAsync(const at::Tensor& tensor, double factor);

  // The reduction in root's tensor; what the other ranks' hold afterwards is undefined.
  absl::Status Reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);
  Work ReduceAsync(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);

  // outputs[r] becomes rank r's input. `outputs`: one tensor of the input's shape and dtype a rank.
  absl::Status AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input);
  Work AllGatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input);

  // The inputs one after another in `output`, which has size() times the input's elements.
  absl::Status AllGatherIntoTensor(const at::Tensor& output, const at::Tensor& input);
  Work AllGatherIntoTensorAsync(const at::Tensor& output, const at::Tensor& input);

  // `output` becomes the reduction of all ranks' inputs[rank()]; the inputs all have the output's shape and dtype.
  absl::Status ReduceScatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                             ReduceOp op = ReduceOp::kSum);
  Work ReduceScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                          ReduceOp op = ReduceOp::kSum);

  // The same for inputs that stand one after another in `input`, which has size() times the output's elements.
  absl::Status ReduceScatterTensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum);
  Work ReduceScatterTensorAsync(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum);

  // outputs[r] becomes rank r's inputs[rank()]. All of one dtype; an output has as many elements as the input it gets.
  absl::Status AllToAll(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
  Work AllToAllAsync(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);

  // The same for single tensors cut along their first dimension: into size() equal parts, or as the splits say, one a
  // rank. Rank a's input_splits[b] must be rank b's output_splits[a].
  absl::Status AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& output_splits = {},
                              const std::vector<int64_t>& input_splits = {});
  Work AllToAllSingleAsync(const at::Tensor& output, const at::Tensor& input,
                           const std::vector<int64_t>& output_splits = {},
                           const std::vector<int64_t>& input_splits = {});

  // On root, outputs[r] becomes rank r's input; elsewhere `outputs` is empty.
  absl::Status Gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root);
  Work GatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root);

  // `output` becomes root's inputs[rank()]; elsewhere `inputs` is empty.
  absl::Status Scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root);
  Work ScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root);

  // From one rank to another; matched by tag, and in order for each tag. The receiver's tensor has the sender's shape
  // and dtype. Send() may return before the tensor is received. Recv() returns the rank it received from.
  absl::Status Send(const at::Tensor& tensor, int destination, int tag = 0);
  Work Isend(const at::Tensor& tensor, int destination, int tag = 0);
  absl::StatusOr<int> Recv(const at::Tensor& tensor, int source = kAnySource, int tag = 0);
  Work Irecv(const at::Tensor& tensor, int source = kAnySource, int tag = 0);

  // Starts all of `operations` or, if one of them cannot be as asked, none; a Work for each (for all together where
  // the backend makes them one). Ranks that give operations that match do not deadlock, whatever the order.
  absl::StatusOr<std::vector<Work>> BatchIsendIrecv(const std::vector<P2POp>& operations);

  // Returns when every rank has called it.
  absl::Status Barrier();
  Work BarrierAsync();

  // Barrier over the store, slower, which says who is missing: "these ranks did not arrive within 2s: 1, 3".
  absl::Status MonitoredBarrier(absl::Duration timeout);

  // Byte strings of any length, such as serialised objects. BroadcastBytes: root's `bytes` on every rank.
  // AllGatherBytes: every rank's, by rank.
  absl::Status BroadcastBytes(std::string& bytes, int root);
  absl::StatusOr<std::vector<std::string>> AllGatherBytes(absl::string_view bytes);

  // A tensor on the CPU, uninitialised, that the backend reduces without copying where it can do such a thing (shm:
  // memory that the ranks share); elsewhere an ordinary tensor. ResourceExhausted if there is no memory.
  absl::StatusOr<at::Tensor> AllocateShared(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat);

  // Whether AllocateShared() has memory that the ranks share.
  bool SharesMemory() const;

  // A group of some of these ranks, given by their numbers here; there they are counted anew, in ascending order. Every
  // rank of this group must call it, with the same ranks; one that is not among them gets nullptr and does not wait.
  // The two groups fail and are destroyed apart. `name` (default: "group n") is what messages call it.
  // InvalidArgument for bad ranks; FailedPrecondition for a group that FromC10d() made.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> NewGroup(std::vector<int> ranks, std::string name = "");

  // A group of this rank's host: every rank of this group must call it, and each gets the group of its own host, named
  // "host `name`". FailedPrecondition also where Python ranks are in the group.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> NewGroupByHost();

  // Ends the group once every rank has called this, or `deadline` has passed: DeadlineExceeded then, and the group is
  // failed. Later calls return FailedPrecondition. The backends are destroyed here, not in the destructor.
  absl::Status Shutdown(absl::Time deadline);

  // Fails the group with `cause`, an error; where every rank is a Lockstep rank of InitProcessGroup() the others fail
  // too, with "rank 1 (...) failed: <message>". Does not block.
  void Abort(const absl::Status& cause);

  // The first error in mid-call, or OK.
  absl::Status failure() const;

  // Made by InitProcessGroup() and NewGroup().
  explicit ProcessGroup(internal::GroupParts parts);

 private:
  friend const std::shared_ptr<internal::GroupState>& internal::StateOf(const ProcessGroup& group);

  template <typename Check, typename Arguments, typename Start>
  Work Launch(internal::Call call, const Check& check, const Arguments& arguments, const Start& start);
  template <typename Start>
  Work LaunchUnchecked(c10d::Backend& backend, internal::Call call, const Start& start);

  c10d::Backend* FindBackend(const internal::Call& call) const;
  absl::Status NoBackend(const internal::Call& call) const;
  absl::Status CheckP2P(const P2POp& operation) const;
  Work StartP2P(const P2POp& operation);
  absl::StatusOr<std::vector<int64_t>> AllGatherSizes(int64_t size, const at::TensorOptions& options);
  absl::Status AwaitOthers(const std::string& key, absl::Duration timeout);
  void Release();

  int rank_ = 0;
  int size_ = 1;
  int exceptions_ = 0;  // under way when the group was made
  bool abortable_ = false;
  // Destroyed in reverse: backends, then the store they met in, then the server behind it.
  c10::intrusive_ptr<c10d::Store> master_;
  c10::intrusive_ptr<c10d::Store> store_;
  BackendMap backends_;
  std::shared_ptr<internal::GroupState> state_;
  std::shared_ptr<const internal::Making> making_;  // null: no sub-groups
  std::vector<int> world_ranks_;                    // of this group's ranks
  std::atomic<int64_t> keys_{0};
  std::atomic<int64_t> groups_{0};
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_PROCESS_GROUP_H_
