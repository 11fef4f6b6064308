#include "lockstep/ddp/communication_hook.h"

#include <ATen/core/ivalue.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::ddp {

Future::Future(at::Tensor value)
    : wait_([value = std::move(value)]() -> absl::StatusOr<at::Tensor> { return value; }) {}

Future::Future(comm::Work work, at::Tensor value)
    : wait_([work = std::make_shared<comm::Work>(std::move(work)),
             value = std::move(value)]() -> absl::StatusOr<at::Tensor> {
        LOCKSTEP_RETURN_IF_ERROR(work->Wait());
        return value;
      }) {}

Future::Future(std::function<absl::StatusOr<at::Tensor>()> wait) : wait_(std::move(wait)) {}

Future::Future(c10::intrusive_ptr<c10::ivalue::Future> future)
    : wait_([future = std::move(future)]() -> absl::StatusOr<at::Tensor> {
        at::Tensor value;
        LOCKSTEP_RETURN_IF_ERROR(TorchStatus("a communication hook's future", [&] {
          future->waitAndThrow();
          const c10::IValue& result = future->constValue();
          value = result.isTensor() ? result.toTensor() : result.toTensorVector().at(0);
        }));
        return value;
      }) {}

Future Future::Then(std::function<absl::StatusOr<at::Tensor>(at::Tensor)> then) && {
  return Future([wait = std::move(wait_), then = std::move(then)]() -> absl::StatusOr<at::Tensor> {
    LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor value, wait());
    return then(std::move(value));
  });
}

absl::StatusOr<at::Tensor> Future::Wait() { return wait_(); }

}  // namespace lockstep::ddp
