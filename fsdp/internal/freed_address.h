// Addresses for freed parameters, with Options::debug: an access there says which parameter it is.

#ifndef LOCKSTEP_FSDP_INTERNAL_FREED_ADDRESS_H_
#define LOCKSTEP_FSDP_INTERNAL_FREED_ADDRESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::fsdp::internal {

struct ReleaseAddress {
  void operator()(void* address) const;
};
using FreedAddress = std::unique_ptr<void, ReleaseAddress>;

// Reserves `bytes` bytes of address space, without memory; null if `bytes` is 0. A thread that reads or writes there gets
// SIGSEGV. Then a handler writes a line to standard error with the rank, the parameter, the byte, and the operator or node
// of autograd that began last on that thread. The handler from before the first call goes on; by default the process ends.
// A handler that the program installs later must call the earlier one.
//
// Linux sends no SIGBUS for such an access. A system call with such an address fails with EFAULT, without a line.
// Thread-safe. ResourceExhausted: the process has no address space left.
absl::StatusOr<FreedAddress> ReserveFreedAddress(int rank, const std::string& parameter, int64_t bytes);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_FREED_ADDRESS_H_
