#ifndef LOCKSTEP_COMM_SHM_INTERNAL_BACKEND_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/backend.h"

namespace lockstep::comm::shm::internal {

// FailedPrecondition naming the first rank that does not share this host's memory.
absl::Status UsableOnOneHost(const BackendContext& context);

// Meets the other ranks of the host through the context's store.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeBackend(const BackendContext& context);

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_BACKEND_H_
