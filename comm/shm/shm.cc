// The "shm" backend: the shared-memory communicator as a c10d::Backend.

#include "lockstep/comm/backend.h"
#include "lockstep/comm/shm/internal/backend.h"

namespace lockstep::comm {
namespace {

[[maybe_unused]] const bool registered = RegisterBackend(
    {"shm", {c10::DeviceType::CPU}, /*preference=*/10, shm::internal::UsableOnOneHost, shm::internal::MakeBackend});

}  // namespace
}  // namespace lockstep::comm
