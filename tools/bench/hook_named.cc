#include "lockstep/tools/bench/hook_named.h"

#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/hooks/power_sgd.h"

namespace lockstep {

std::vector<std::string> HookNames() { return {"none", "fp16", "power_sgd"}; }

absl::StatusOr<ddp::CommunicationHook> HookNamed(const std::string& name, comm::ProcessGroup& group) {
  if (name == "none") return ddp::CommunicationHook();
  if (name == "fp16") return ddp::hooks::Fp16Compress(&group);
  ddp::hooks::PowerSgdOptions options;
  options.matrix_approximation_rank = 4;
  options.start_power_sgd_iter = 2;
  return ddp::hooks::PowerSgd(&group, options);
}

}  // namespace lockstep
