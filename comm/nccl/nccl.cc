// The "nccl" backend, with CUDA: PyTorch's own NCCL process group, whose code is inside libtorch_cuda.

#include <stdlib.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/nccl/internal/preference.h"

namespace lockstep::comm {
namespace {

// By default PyTorch's watchdog ends the process when a collective fails, after a minute in which it writes a trace of
// the last collectives. PyTorch reads these when it creates a process group. A value that the user has set is kept.
void KeepTheProcessOnErrors() {
  static std::once_flag once;
  std::call_once(once, [] {
    // The watchdog aborts the communicator, so that the error reaches the caller that waits.
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
    setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
    // Before it aborts, it sleeps for four times as many milliseconds, with a trace or without.
    setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1", /*overwrite=*/0);
  });
}

// Aborts that are under way. The process waits for them before it exits, since NCCL's threads use what exit() destroys.
class Aborts {
 public:
  static Aborts& Get() {
    static auto* const aborts = new Aborts;
    return *aborts;
  }
  void Begin() {
    const MutexLock lock(mutex_);
    ++count_;
  }
  void End() {
    const MutexLock lock(mutex_);
    --count_;
  }

 private:
  Aborts() {
    atexit([] { Get().Await(); });
  }
  void Await() {
    const MutexLock lock(mutex_);
    const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ == 0; };
    mutex_.AwaitWithTimeout(absl::Condition(&none), kExitPatience);
  }

  static constexpr absl::Duration kExitPatience = absl::Seconds(10);
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Aborts without blocking. NCCL ends its kernels at once, but needs half a second to free a communicator.
class Backend : public c10d::ProcessGroupNCCL {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;

  void abort() override {
    if (aborted_.exchange(true)) return;
    Aborts::Get().Begin();
    // On the thread the last reference may go, and the destructor joins PyTorch's threads.
    const auto self =
        std::make_shared<c10::intrusive_ptr<Backend>>(c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this));
    const auto end = [self] {
      const absl::Status aborted = TorchStatus("", [&] { (*self)->ProcessGroupNCCL::abort(); });
      if (!aborted.ok()) LOG(WARNING) << "aborting NCCL: " << aborted.message();
      self->reset();
      Aborts::Get().End();
    };
    absl::StatusOr<std::thread> thread = StartThread("NCCL's end", end);
    if (thread.ok()) {
      thread->detach();
    } else {
      end();
    }
  }

 private:
  std::atomic<bool> aborted_{false};
};

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const BackendContext& context) {
  KeepTheProcessOnErrors();
  return TorchStatusOr("making the nccl backend", [&]() -> c10::intrusive_ptr<c10d::Backend> {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = absl::ToChronoMilliseconds(context.timeout);
    options->group_name = context.group;
    return c10::make_intrusive<Backend>(context.store, context.rank, context.size, options);
  });
}

[[maybe_unused]] const bool registered =
    RegisterBackend({"nccl", {c10::DeviceType::CUDA}, internal::kNcclPreference, /*usable=*/nullptr, Create});

}  // namespace
}  // namespace lockstep::comm
