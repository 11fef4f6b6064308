// The communication hooks that the suites measure.

#ifndef LOCKSTEP_TOOLS_BENCH_HOOK_NAMED_H_
#define LOCKSTEP_TOOLS_BENCH_HOOK_NAMED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep {

std::vector<std::string> HookNames();

// For one of HookNames(). "none": no hook. "power_sgd": of rank 4, from the second step on. Every rank of `group` must
// call it.
absl::StatusOr<ddp::CommunicationHook> HookNamed(const std::string& name, comm::ProcessGroup& group);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_HOOK_NAMED_H_
