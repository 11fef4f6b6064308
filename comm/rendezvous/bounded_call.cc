#include "lockstep/comm/rendezvous/bounded_call.h"

#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/notification.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/sigpipe.h"

namespace lockstep::comm::internal {
namespace {

struct Call {
  std::function<absl::Status()> body;
  absl::Status result;  // written before `done`
  absl::Notification done;
};

void Run(const std::shared_ptr<Call>& call) {
  absl::Status returned;
  const absl::Status thrown = TorchStatus("", [&] { returned = call->body(); });
  returned.Update(thrown);
  call->body = nullptr;  // what it owns must not outlive the answer
  call->result = std::move(returned);
  call->done.Notify();
}

}  // namespace

absl::Status CallByDeadline(std::function<absl::Status()> body, absl::Time deadline) {
  const auto call = std::make_shared<Call>();
  call->body = std::move(body);
  std::thread thread;
  {
    const BlockSigpipe block;
    thread = std::thread([call] { Run(call); });
  }
  if (call->done.WaitForNotificationWithDeadline(deadline)) {
    thread.join();
    return call->result;
  }
  thread.detach();
  return absl::DeadlineExceededError("no answer");
}

}  // namespace lockstep::comm::internal
