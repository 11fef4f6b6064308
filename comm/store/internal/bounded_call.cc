#include "lockstep/comm/store/internal/bounded_call.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/sigpipe.h"

namespace lockstep::comm::internal {

struct BoundedCall::State {
  std::function<absl::Status()> body;
  absl::Status result;  // written before `done`
  absl::Notification done;

  void Run() {
    absl::Status returned;
    const absl::Status thrown = TorchStatus("", [&] { returned = body(); });
    returned.Update(thrown);
    End(std::move(returned));
  }

  void End(absl::Status status) {
    body = nullptr;  // its captures must not outlive the answer
    result = std::move(status);
    done.Notify();
  }
};

BoundedCall::BoundedCall(std::function<absl::Status()> call) : state_(std::make_shared<State>()) {
  state_->body = std::move(call);
  const BlockSigpipe block;
  absl::StatusOr<std::thread> thread = StartThread("a call's thread", [state = state_] { state->Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    state_->End(thread.status());
  }
}

BoundedCall::~BoundedCall() {
  if (!thread_.joinable()) return;
  if (state_->done.HasBeenNotified()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

bool BoundedCall::Await(absl::Time deadline) { return state_->done.WaitForNotificationWithDeadline(deadline); }
absl::Status BoundedCall::result() const { return state_->result; }

absl::Status CallByDeadline(std::function<absl::Status()> call, absl::Time deadline) {
  BoundedCall bounded(std::move(call));
  return bounded.Await(deadline) ? bounded.result() : absl::DeadlineExceededError("no answer");
}

}  // namespace lockstep::comm::internal
