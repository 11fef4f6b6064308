// The parameters that take part in a step, on this rank and on any.

#ifndef LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_
#define LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Each rank marks the parameters that it uses. An exchange, one all_reduce of an int32 per parameter as in PyTorch,
// tells every rank which parameters any rank used. A default-constructed object treats all parameters as used, and
// exchanges nothing.
class UsedParameters {
 public:
  UsedParameters() = default;

  // For `parameters` parameters. The exchange runs on `device`, the parameters' device. `each_step`: the marks are made
  // anew in each step. Otherwise the marks of the first step hold for all steps, once MakeFinal() is called.
  UsedParameters(int parameters, c10::Device device, bool each_step);

  // This rank uses the parameter. Does nothing once the marks are final().
  void Mark(int parameter) {
    if (!used_.empty() && !final_) used_[static_cast<size_t>(parameter)] = 1;
  }

  // This rank uses all parameters but these, which are in ascending order.
  void MarkAllBut(const std::vector<int>& unused);

  // Starts the exchange, which WaitForAll() ends. WaitForAll() does nothing if none has started.
  void StartExchange(comm::ProcessGroup& group);
  absl::Status WaitForAll();

  // Returns whether this rank uses the parameter, or, once the exchange has ended, any rank.
  bool Used(int parameter) const { return used_.empty() || used_[static_cast<size_t>(parameter)] != 0; }

  // Returns whether none of the parameters is used. False while marks that are to become final are not.
  bool NoneUsed(const std::vector<int>& parameters) const;

  void MakeFinal() { final_ = true; }
  bool final() const { return final_; }

  // Forgets the marks if they are made in each step.
  void EndStep();

 private:
  std::vector<int32_t> used_;  // empty: all are
  bool each_step_ = false;
  bool final_ = false;
  at::Tensor exchanged_;
  std::optional<comm::Work> work_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_USED_PARAMETERS_H_
