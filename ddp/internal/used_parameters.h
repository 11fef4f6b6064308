#ifndef LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_
#define LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Which parameters a step used, on this rank and on any: one all_reduce of an int32 a parameter, as PyTorch's.
class UsedParameters {
 public:
  // `device` is where the numbers travel: that of the parameters.
  UsedParameters(int parameters, c10::Device device);

  void Mark(int parameter) { used_[parameter] = 1; }

  // Starts the exchange, which WaitForAll() ends.
  void StartExchange(comm::ProcessGroup& group);
  absl::Status WaitForAll();

  // On this rank, or, once the exchange has ended, on any.
  bool Used(int parameter) const { return used_[parameter] != 0; }

  // Makes ready for another step.
  void Clear();

 private:
  std::vector<int32_t> used_;
  at::Tensor exchanged_;
  absl::optional<comm::Work> work_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_
