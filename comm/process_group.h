// Process groups, and the collectives among their ranks.

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
struct GroupAccess;
struct GroupFactory;
struct GroupParts;
struct HostSums;
class HostSumBackend;
class TreeSumBackend;
}  // namespace internal

struct TreeSumOrder;

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
// unless a comment says otherwise. Each collective has a blocking form and an asynchronous form that returns a Work.
// Tensors must be contiguous, on a device for which the group has a backend. They must not be changed until the Work is
// done. Other dense tensors, such as images in channels_last, are taken by broadcasts, reductions, sends, receives, and
// calls with a list of one tensor a rank. Their elements correspond by index, whatever strides each rank has; for that
// they are copied to contiguous memory, and results are copied back in Wait(). In a group that has, or may have, Python
// ranks, the elements of such a tensor correspond by their places in memory, as in Python, so all ranks must have the
// same strides. There AllGather() takes it on the CPU only, and the other calls with a list refuse it, since Python may
// permute the values.
// An invalid call returns InvalidArgument, and a call whose dtype the backend does not support returns Unimplemented,
// before anything is sent; the group stays usable.
//
// Every call has an id, such as "all_reduce #12", in its errors and traces (VLOG(2)). Sends and receives are counted
// separately from collectives. Errors name this rank, the id and the tensor. After the first error during a call the
// ranks may be out of step, so the group has failed: calls under way end, and every later call returns that first error
// at once. DeadlineExceeded: the timeout passed. Unavailable: a connection broke or a rank died. Aborted: a rank called
// Abort() or failed.
//
// Threads: calls from several threads are memory-safe. failure(), Abort() and the methods of a Work may be called from
// any thread. But the order of collectives must be the same on every rank, and the calls of two threads are issued in
// no particular order. So let one thread issue them, hold a lock that gives every rank one order, or use a group for
// each thread.
//
// The destructor waits for calls under way, at most for the timeout. For a failed group it returns within a second. If
// an exception's stack unwinding destroys the group, it reports that to the other ranks.
class ProcessGroup {
 public:
  static constexpr int kAnySource = -1;

  // Creates a group from existing c10d backends, one for each device type, all of one rank and size. All ranks share
  // `store`, for MonitoredBarrier() and the group's users. Nothing is exchanged, and failures are not reported to other
  // ranks, so Python ranks may be in the group. InvalidArgument: the backends do not fit together.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> FromC10d(BackendMap backends,
                                                                c10::intrusive_ptr<c10d::Store> store,
                                                                absl::Duration timeout = absl::Minutes(30));

  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // "world", or a sub-group's name.
  const std::string& name() const;
  absl::Duration timeout() const;

  // A store for small values, shared by all ranks. Its keys are prefixed for this group.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  // Runs `call` with store() and returns its status. It always ends, even if the process that serves the store dies. An
  // exception becomes a status too. `call` runs on a separate thread, which is abandoned if it does not return in time,
  // so it must own everything it uses.
  //
  //   const auto word = std::make_shared<std::string>();
  //   absl::Status status = group->CallStore(absl::Now() + group->timeout(), [word, key](c10d::Store& store) {
  //     *word = store.get_to_str(key);
  //     return absl::OkStatus();
  //   });
  //
  // DeadlineExceeded: `deadline` passed. If the group fails meanwhile, returns the group's failure() at once, which
  // names a dead rank. If the group has failed before, `call` has until `deadline`, but at most 1 s.
  absl::Status CallStore(absl::Time deadline, std::function<absl::Status(c10d::Store& store)> call) const;

  // Copies root's tensor into every rank's.
  absl::Status Broadcast(const at::Tensor& tensor, int root);
  Work BroadcastAsync(const at::Tensor& tensor, int root);

  // Reduces over all ranks, in place. Every rank gets the same bits.
  absl::Status AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Work AllReduceAsync(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // Reduces several tensors of one dtype and device, as one call.
  absl::Status AllReduceCoalesced(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::kSum);
  Work AllReduceCoalescedAsync(const std::vector<at::Tensor>& tensors, ReduceOp op = ReduceOp::kSum);

  // Reduces into root's tensor. The contents of the other ranks' tensors are undefined afterwards.
  absl::Status Reduce(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);
  Work ReduceAsync(const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum);

  // Copies rank r's input to outputs[r] on every rank. `outputs` has one tensor of the input's shape and dtype for each
  // rank.
  absl::Status AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input);
  Work AllGatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input);

  // Concatenates all inputs in `output`, which has size() times as many elements as the input.
  absl::Status AllGatherIntoTensor(const at::Tensor& output, const at::Tensor& input);
  Work AllGatherIntoTensorAsync(const at::Tensor& output, const at::Tensor& input);

  // `output` becomes the reduction of inputs[rank()] over all ranks. All inputs have the output's shape and dtype.
  absl::Status ReduceScatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                             ReduceOp op = ReduceOp::kSum);
  Work ReduceScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                          ReduceOp op = ReduceOp::kSum);

  // Like ReduceScatter(), for inputs concatenated in `input`, which has size() times as many elements as the output.
  absl::Status ReduceScatterTensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum);
  Work ReduceScatterTensorAsync(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum);

  // outputs[r] becomes rank r's inputs[rank()]. All tensors have one dtype. An output has as many elements as the input
  // that it receives.
  absl::Status AllToAll(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
  Work AllToAllAsync(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);

  // Like AllToAll(), for single tensors split along their first dimension: into size() equal parts, or into the given
  // sizes, one for each rank. Rank a's input_splits[b] must equal rank b's output_splits[a].
  absl::Status AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& output_splits = {},
                              const std::vector<int64_t>& input_splits = {});
  Work AllToAllSingleAsync(const at::Tensor& output, const at::Tensor& input,
                           const std::vector<int64_t>& output_splits = {},
                           const std::vector<int64_t>& input_splits = {});

  // On root, outputs[r] becomes rank r's input. On other ranks `outputs` is empty.
  absl::Status Gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root);
  Work GatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root);

  // `output` becomes root's inputs[rank()]. On other ranks `inputs` is empty.
  absl::Status Scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root);
  Work ScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root);

  // Sends a tensor from one rank to another. Messages are matched by tag, and in order for each tag. The receiver's
  // tensor must have the sender's shape and dtype. Send() may return before the tensor is received. Recv() returns the
  // rank of the sender.
  absl::Status Send(const at::Tensor& tensor, int destination, int tag = 0);
  Work Isend(const at::Tensor& tensor, int destination, int tag = 0);
  absl::StatusOr<int> Recv(const at::Tensor& tensor, int source = kAnySource, int tag = 0);
  Work Irecv(const at::Tensor& tensor, int source = kAnySource, int tag = 0);

  // Starts all of `operations`, or none if one of them is invalid. Returns a Work for each, or one for all if the
  // backend combines them. Ranks with matching operations do not deadlock, whatever their order.
  absl::StatusOr<std::vector<Work>> BatchIsendIrecv(const std::vector<P2POp>& operations);

  // Returns when every rank has called it.
  absl::Status Barrier();
  Work BarrierAsync();

  // A slower barrier over the store. Its error names the missing ranks: "these ranks did not arrive within 2s: 1, 3".
  absl::Status MonitoredBarrier(absl::Duration timeout);

  // Exchanges byte strings of any length, such as serialised objects. BroadcastBytes copies root's `bytes` to every
  // rank. AllGatherBytes returns every rank's bytes, by rank.
  absl::Status BroadcastBytes(std::string& bytes, int root);
  absl::StatusOr<std::vector<std::string>> AllGatherBytes(absl::string_view bytes);

  // Allocates an uninitialised CPU tensor. If the backend can (shm), it is in memory that the ranks share, and is
  // reduced without copying. Over hierarchical, with as many ranks on each host, it is in memory that the ranks of the
  // host share. Otherwise it is an ordinary tensor. ResourceExhausted: memory ran out.
  absl::StatusOr<at::Tensor> AllocateShared(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat);

  // Blocks until the current stream of `device` has done its work, then returns the group's failure(). The results of a
  // collective on a GPU may be read, or counted as a step, only after this has returned OK: when a rank dies, the calls
  // under way end with undefined results, and their Works, which wait on the GPU only, do not tell. On a CPU only
  // returns failure(). Not a collective. Internal: CUDA reports an error.
  absl::Status Synchronize(c10::Device device);

  // Creates a group of the given ranks of this group. In the new group they are numbered from 0, in ascending order.
  // Every rank of this group must call it, with the same `ranks`. A rank that is not among them gets nullptr and does
  // not wait. Failure or destruction of one group does not affect the other. Messages call the group `name` (default:
  // "group n"). InvalidArgument: bad ranks. FailedPrecondition: this group is from FromC10d().
  absl::StatusOr<std::unique_ptr<ProcessGroup>> NewGroup(std::vector<int> ranks, std::string name = "");

  // Creates a group of all ranks on this host. Every rank of this group must call it, and gets the group of its host,
  // named "host `name`". Returns NewGroup()'s errors, and FailedPrecondition also if Python ranks are in the group.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> NewGroupByHost();

  // Ends the group once every rank has called this. DeadlineExceeded, and the group has failed: `deadline` passed
  // first. Later calls return FailedPrecondition. The backends are destroyed here, not in the destructor.
  absl::Status Shutdown(absl::Time deadline);

  // Fails the group with `cause`, which must be an error. If every rank is a Lockstep rank of InitProcessGroup(), the
  // other ranks fail too, with "rank 1 (...) failed: <message>". Does not block.
  void Abort(const absl::Status& cause);

  // The first error during a call, or OK.
  absl::Status failure() const;

 private:
  friend struct internal::GroupAccess;

  explicit ProcessGroup(internal::GroupParts parts);

  template <typename Check, typename Arguments, typename Start>
  Work Dispatch(internal::Call call, const Check& check, const Arguments& arguments, const Start& start);
  template <typename Start>
  Work DispatchUnchecked(c10d::Backend& backend, internal::Call call, const Start& start);

  c10d::Backend* BackendFor(const internal::Call& call) const;
  absl::Status NoBackend(const internal::Call& call) const;
  // Returns whether the elements of ranks' tensors correspond by their indices, and not by their places in memory as in
  // Python.
  bool MatchesByIndex() const;
  absl::Status CheckP2P(const P2POp& operation) const;
  Work StartP2P(const P2POp& operation);
  bool OnlyLockstepRanks() const;
  void SetUneven(bool uneven) { uneven_ = uneven; }
  bool uneven() const { return uneven_; }
  std::string NextKey(absl::string_view purpose);
  bool HasBackend(c10::DeviceType device) const { return backends_.count(device) != 0; }
  bool SharesMemory() const;
  Work AllReducePremulSumAsync(const at::Tensor& tensor, double factor);
  internal::TreeSumBackend* TreeSumBackendOf(c10::DeviceType device) const;
  Work TreeSumAsync(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                    std::shared_ptr<const TreeSumOrder> order);
  Work TreeScatterAsync(const at::Tensor& slice, const at::Tensor& leaf, std::shared_ptr<const TreeSumOrder> order);
  internal::HostSumBackend* HostSumBackendOf(c10::DeviceType device) const;
  Work SumOnHostsAsync(const at::Tensor& received, const at::Tensor& leaf,
                       std::shared_ptr<const internal::HostSums> sums);
  absl::StatusOr<at::Tensor> AllocateCommon(int64_t bytes);
  void Release();

  int rank_ = 0;
  int size_ = 1;
  int exceptions_ = 0;  // number of exceptions under way when the group was created
  bool abortable_ = false;
  bool uneven_ = false;  // see GroupAccess
  // Destroyed in reverse order: backends, then the store in which they met, then its server.
  c10::intrusive_ptr<c10d::Store> master_;
  c10::intrusive_ptr<c10d::Store> store_;
  BackendMap backends_;
  std::shared_ptr<internal::GroupState> state_;
  std::shared_ptr<const internal::GroupFactory> factory_;  // null: sub-groups are not supported
  std::vector<int> world_ranks_;                           // of this group's ranks
  std::atomic<int64_t> keys_{0};
  std::atomic<int64_t> groups_{0};
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_PROCESS_GROUP_H_
