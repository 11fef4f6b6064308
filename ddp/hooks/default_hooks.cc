#include "lockstep/ddp/hooks/default_hooks.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/ddp/hooks/internal/same_part.h"
#include "lockstep/ddp/internal/known_hook.h"

namespace lockstep::ddp::hooks {
namespace {

using ddp::internal::HookAverage;
using ddp::internal::KnownHook;

Future Failed(absl::Status status) {
  return Future([status = std::move(status)]() -> absl::StatusOr<at::Tensor> { return status; });
}

// A cast would drop the imaginary parts.
absl::Status CheckReal(const GradBucket& bucket, c10::ScalarType dtype) {
  if (!bucket.buffer.is_complex()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket.index, " holds ",
                                                 c10::toString(bucket.buffer.scalar_type()),
                                                 ", which cannot be compressed to ", c10::toString(dtype)));
}

// The future of `buffer`, into which the result of `future` is cast.
Future CastInto(const at::Tensor& buffer, Future future) {
  return std::move(future).Then([buffer](const at::Tensor& value) -> absl::StatusOr<at::Tensor> {
    buffer.copy_(value);
    return buffer;
  });
}

KnownHook Compress(std::string name, comm::ProcessGroup* group, c10::ScalarType dtype) {
  const auto call = [group, dtype](GradBucket& bucket) {
    const absl::Status real = CheckReal(bucket, dtype);
    if (!real.ok()) return Failed(real);
    const at::Tensor compressed = bucket.buffer.to(dtype).div_(group->size());
    return CastInto(bucket.buffer, Future(group->AllReduceAsync(compressed), compressed));
  };
  return KnownHook{std::move(name), HookAverage{dtype}, call};
}

std::shared_ptr<GradBucket> Cast(const GradBucket& bucket, c10::ScalarType dtype) {
  auto cast = std::make_shared<GradBucket>(bucket);
  cast->buffer = bucket.buffer.to(dtype);
  for (at::Tensor& gradient : cast->gradients) gradient = internal::SamePart(cast->buffer, bucket.buffer, gradient);
  return cast;
}

// Averages if `hook` does so without a cast of its own.
KnownHook CompressWrapper(std::string name, CommunicationHook hook, c10::ScalarType dtype) {
  std::optional<HookAverage> average;
  if (const auto* known = hook.target<KnownHook>()) {
    absl::StrAppend(&name, " of ", known->name);
    if (known->average && !known->average->dtype) average = HookAverage{dtype};
  }
  const auto call = [hook = std::move(hook), dtype](GradBucket& bucket) {
    const absl::Status real = CheckReal(bucket, dtype);
    if (!real.ok()) return Failed(real);
    const std::shared_ptr<GradBucket> cast = Cast(bucket, dtype);
    // The hook may refer to its bucket until its future is there.
    return CastInto(bucket.buffer,
                    hook(*cast).Then([cast](at::Tensor value) -> absl::StatusOr<at::Tensor> { return value; }));
  };
  return KnownHook{std::move(name), average, call};
}

}  // namespace

CommunicationHook AllReduce(comm::ProcessGroup* group) {
  const auto call = [group](GradBucket& bucket) {
    if (group->size() > 1) bucket.buffer.div_(group->size());
    return Future(group->AllReduceAsync(bucket.buffer), bucket.buffer);
  };
  return KnownHook{"AllReduce", HookAverage{}, call};
}

CommunicationHook Fp16Compress(comm::ProcessGroup* group) { return Compress("Fp16Compress", group, c10::kHalf); }
CommunicationHook Bf16Compress(comm::ProcessGroup* group) { return Compress("Bf16Compress", group, c10::kBFloat16); }

CommunicationHook Fp16CompressWrapper(CommunicationHook hook) {
  return CompressWrapper("Fp16CompressWrapper", std::move(hook), c10::kHalf);
}
CommunicationHook Bf16CompressWrapper(CommunicationHook hook) {
  return CompressWrapper("Bf16CompressWrapper", std::move(hook), c10::kBFloat16);
}

CommunicationHook Noop() {
  return KnownHook{"Noop", std::nullopt, [](GradBucket& bucket) { return Future(bucket.buffer); }};
}

}  // namespace lockstep::ddp::hooks
