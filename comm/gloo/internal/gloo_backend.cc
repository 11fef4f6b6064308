#include "lockstep/comm/gloo/internal/gloo_backend.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/gloo/internal/connection_watch.h"
#include "lockstep/comm/gloo/internal/gloo_threads.h"
#include "lockstep/comm/gloo/internal/gloo_work.h"
#include "lockstep/comm/gloo/internal/native_form.h"
#include "lockstep/comm/internal/sigpipe.h"
#include "lockstep/comm/internal/silent_hosts.h"

namespace lockstep::comm::internal {
namespace {

using c10d::OpType;
using c10d::ProcessGroupGloo;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// PyTorch 2.11's flight recorder writes an unguarded std::map, shared by all groups of the process, whenever a Gloo
// collective starts: two threads that start one at the same time corrupt it. So only one thread starts a collective at
// a time. No thread waits for other ranks while it does.
absl::Mutex& StartMutex() {
  static auto* const mutex = new absl::Mutex();
  return *mutex;
}

Tensors MovedForms(const Tensors& tensors) {
  Tensors moved;
  for (const at::Tensor& tensor : tensors) moved.push_back(MovedForm(tensor));
  return moved;
}

// All elements one after another, in new memory.
at::Tensor Flattened(const Tensors& tensors) {
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().view({-1}));
  return at::cat(flat);
}

void Unflatten(const at::Tensor& flat, const Tensors& tensors) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().view({-1}).copy_(flat.slice(0, offset, offset + tensor.numel()));
    offset += tensor.numel();
  }
}

std::vector<int64_t> Sizes(const Tensors& tensors) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

// Gloo sends the other ranks four sizes of either kind. It reports other tensors only after it has begun.
void CheckSparse(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(IsNative(dtype), "all_reduce of sparse ", c10::toString(dtype),
                              ": the gloo backend has no sum");
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.sparse_dim() <= 4 && tensor.dense_dim() <= 4,
      "all_reduce of a sparse tensor: the gloo backend takes four sparse and four dense dimensions at most, found ",
      tensor.sparse_dim(), " and ", tensor.dense_dim());
}

// Converts splits of rows to splits of the flat bytes.
std::vector<int64_t> ByteSplits(const at::Tensor& tensor, std::vector<int64_t> splits, int size) {
  if (splits.empty()) return splits;
  const int64_t row = tensor.size(0) == 0 ? 0 : tensor.nbytes() / tensor.size(0);
  for (int64_t& split : splits) split *= row;
  return splits;
}

class GlooBackend final : public c10d::Backend {
 public:
  GlooBackend(const BackendContext& context, c10::intrusive_ptr<ProcessGroupGloo> gloo,
              std::shared_ptr<GlooCalls> calls)
      : Backend(context.rank, context.size), gloo_(std::move(gloo)), calls_(std::move(calls)) {}

  // Gloo's destructor waits for the calls under way, up to their timeouts. If the group was aborted, a detached thread
  // destroys it, so that neither the caller nor the exit of the process waits.
  ~GlooBackend() override {
    const BlockSigpipe block;
    connections_.reset();
    if (calls_->broken()) {
      gloo_.release();  // its destructor might wait for the locks of the lost thread
      return;
    }
    if (!aborted_ || !calls_->Busy()) {
      gloo_.reset();
      return;
    }
    const auto held = std::make_shared<c10::intrusive_ptr<ProcessGroupGloo>>(std::move(gloo_));
    absl::StatusOr<std::thread> thread = StartThread("Gloo's last thread", [held] { held->reset(); });
    if (thread.ok()) thread->detach();
  }

  const std::string getBackendName() const override { return "gloo"; }
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 9)
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
#endif

  // If a host does not answer, all calls end with an error that names it.
  absl::Status WatchConnectionsSince(const std::set<int>& before) {
    LOCKSTEP_ASSIGN_OR_RETURN(connections_, ConnectionWatch::Start(before, [this](const std::string& silence) {
                                aborted_ = true;
                                calls_->Abort(silence);
                              }));
    return absl::OkStatus();
  }

  void abort() override {
    aborted_ = true;
    calls_->Abort();
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors moved = MovedForms(tensors);
    return Start(OpType::BROADCAST, [&] { return gloo_->broadcast(moved, options); });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return AllReduce(OpType::ALLREDUCE, Reduce("all_reduce", tensors.at(0), options.reduceOp.op_, getSize()));
  }

  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    CheckSparse(tensors.at(0));
    return Start(OpType::_ALLREDUCE_SPARSE, [&] { return gloo_->allreduce(tensors, options); });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    const at::Tensor flat = Flattened(tensors);
    return AllReduce(OpType::ALLREDUCE_COALESCED, Reduce("all_reduce_coalesced", flat, options.reduceOp.op_, getSize()),
                     [flat, tensors] { Unflatten(flat, tensors); });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    ReducedForm form = Reduce("reduce", tensors.at(0), options.reduceOp.op_, getSize());
    Tensors reduced = {form.tensor};
    c10d::ReduceOptions own = options;
    own.reduceOp = form.op;
    return Start(
        OpType::REDUCE, [&] { return gloo_->reduce(reduced, own); }, form.after);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    std::vector<Tensors> to = {MovedForms(outputs.at(0))};
    Tensors from = MovedForms(inputs);
    return Start(OpType::ALLGATHER, [&] { return gloo_->allgather(to, from, options); });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    at::Tensor from = MovedForm(input).view({-1});
    std::vector<Tensors> to = {MovedForm(output).view({getSize(), from.numel()}).unbind()};
    Tensors inputs = {from};
    return Start(OpType::_ALLGATHER_BASE, [&] { return gloo_->allgather(to, inputs, options); });
  }

  // As in Python: Gloo has no reduce-scatter, so every rank reduces the whole input.
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return ReduceScatter(OpType::REDUCE_SCATTER, "reduce_scatter", outputs.at(0), Flattened(inputs.at(0)),
                         options.reduceOp.op_);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return ReduceScatter(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", output,
                         input.detach().clone().view({-1}), options.reduceOp.op_);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    const bool native = IsNative(input.scalar_type());
    at::Tensor to = MovedForm(output), from = MovedForm(input);
    std::vector<int64_t> to_splits = native ? output_splits : ByteSplits(output, output_splits, getSize());
    std::vector<int64_t> from_splits = native ? input_splits : ByteSplits(input, input_splits, getSize());
    return Start(OpType::ALLTOALL_BASE,
                 [&] { return gloo_->alltoall_base(to, from, to_splits, from_splits, options); });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    Tensors from_parts = MovedForms(inputs), to_parts = MovedForms(outputs);
    at::Tensor from = Flattened(from_parts), to = Flattened(to_parts);
    std::vector<int64_t> from_splits = Sizes(from_parts), to_splits = Sizes(to_parts);
    return Start(
        OpType::ALLTOALL, [&] { return gloo_->alltoall_base(to, from, to_splits, from_splits, options); },
        [to, to_parts] { Unflatten(to, to_parts); });
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    std::vector<Tensors> to;
    for (const Tensors& list : outputs) to.push_back(MovedForms(list));
    Tensors from = MovedForms(inputs);
    return Start(OpType::GATHER, [&] { return gloo_->gather(to, from, options); });
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    std::vector<Tensors> from;
    for (const Tensors& list : inputs) from.push_back(MovedForms(list));
    Tensors to = MovedForms(outputs);
    return Start(OpType::SCATTER, [&] { return gloo_->scatter(to, from, options); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return Start(OpType::BARRIER, [&] { return gloo_->barrier(options); });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    Tensors moved = MovedForms(tensors);
    return Point(OpType::SEND, [&] { return gloo_->send(moved, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    Tensors moved = MovedForms(tensors);
    return Point(OpType::RECV, [&] { return gloo_->recv(moved, from, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    Tensors moved = MovedForms(tensors);
    return Point(OpType::RECVANYSOURCE, [&] { return gloo_->recvAnysource(moved, tag); });
  }

 private:
  template <typename Begin>
  WorkPtr Start(OpType type, const Begin& begin, const std::function<void()>& after = nullptr) {
    const BlockSigpipe block;
    const MutexLock lock(StartMutex());
    return CollectiveWork::Create(getRank(), type, calls_, begin(), after);
  }

  template <typename Begin>
  WorkPtr Point(OpType type, const Begin& begin) {
    const BlockSigpipe block;
    const MutexLock lock(StartMutex());
    return c10::make_intrusive<PointToPointWork>(getRank(), type, calls_, begin());
  }

  WorkPtr AllReduce(OpType type, ReducedForm form, std::function<void()> then = nullptr) {
    Tensors reduced = {form.tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = form.op;
    std::function<void()> after = std::move(form.after);
    if (then) {
      after = [first = std::move(after), then = std::move(then)] {
        if (first) first();
        then();
      };
    }
    return Start(
        type, [&] { return gloo_->allreduce(reduced, options); }, after);
  }

  WorkPtr ReduceScatter(OpType type, const char* name, const at::Tensor& output, const at::Tensor& flat,
                        c10d::ReduceOp::RedOpType op) {
    const int64_t offset = getRank() * output.numel();
    return AllReduce(type, Reduce(name, flat, op, getSize()), [to = output.detach(), flat, offset] {
      to.view({-1}).copy_(flat.slice(0, offset, offset + to.numel()));
    });
  }

  c10::intrusive_ptr<ProcessGroupGloo> gloo_;
  const std::shared_ptr<GlooCalls> calls_;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<ConnectionWatch> connections_;
};

bool HaveSeveralHosts(const std::vector<RankIdentity>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankIdentity& rank) { return !OnOneHost(ranks[0], rank); });
}

// Gloo ends the process if its thread cannot accept a connection, or if only some of its threads start.
absl::Status CheckResources(int connections) {
  constexpr int kBesideConnections = 8;  // a listener, an epoll and an eventfd for each device, and a connecting socket
  constexpr int kThreads = 5;            // for each device two that call and one that polls, and one of its own
  LOCKSTEP_RETURN_IF_ERROR(CheckFreeDescriptors(connections + kBesideConnections));
  return CheckThreadsStart("Gloo's threads", kThreads);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(const BackendContext& context) {
  const BlockSigpipe block;
  ThrowIfError(CheckResources(ConnectsLazily(context) ? 0 : context.size));
  const auto calls = std::make_shared<GlooCalls>(absl::ToChronoMilliseconds(context.timeout));
  const auto made = std::make_shared<c10::intrusive_ptr<ProcessGroupGloo>>();
  const bool watches = HaveSeveralHosts(context.ranks);
  const std::set<int> before = watches ? EventLoops() : std::set<int>();
  const auto make = [context, made] {
    auto options = ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(context.timeout));
    options->devices = ChooseDevices(context);
    // Two threads for each device, as in Python's init_process_group.
    options->threads = static_cast<int>(options->devices.size()) * 2;
    *made = c10::make_intrusive<ProcessGroupGloo>(context.store, context.rank, context.size, options);
  };
  ConnectingHosts connecting;
  absl::Time next_look = absl::InfinitePast();
  StartGloo(calls, make, [&] {
    context.store->check({});  // throws if the group has failed
    const absl::Time now = absl::Now();
    if (!watches || now < next_look) return;
    next_look = now + absl::Seconds(1);
    std::set<int> loops = EventLoops();
    for (const int loop : before) loops.erase(loop);
    const std::string silent = connecting.Silent(now, SocketsOf(loops));
    if (silent.empty()) return;
    RecordSilentHost(silent);
    ThrowIfError(absl::UnavailableError(absl::StrCat("connecting: host ", silent, " ", kDoesNotAnswer)));
  });
  auto backend = c10::make_intrusive<GlooBackend>(context, std::move(*made), calls);
  if (watches) ThrowIfError(backend->WatchConnectionsSince(before));
  return backend;
}

}  // namespace lockstep::comm::internal
