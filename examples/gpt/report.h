// The lines that a training prints.

#ifndef LOCKSTEP_EXAMPLES_GPT_REPORT_H_
#define LOCKSTEP_EXAMPLES_GPT_REPORT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::examples {

// The lines of one group of ranks, each of which calls all functions. Rank 0 prints.
class Report {
 public:
  // `group` is borrowed. Prints what is trained, from `step` to `steps`. A step has `batch` blocks of `block` tokens, over
  // all ranks. Matrices are multiplied in `dtype`.
  Report(comm::ProcessGroup& group, models::CausalLMImpl& net, at::ScalarType dtype, int64_t step, int64_t steps,
         int64_t batch, int64_t block);

  // After `step` steps, each tenth and the last: prints the loss, tokens per second, and the model's share of the
  // products of matrices that the machine computes in that time, in the same dtype. `losses`, double [virtual ranks], has
  // this rank's of the last step, and otherwise zeros.
  absl::Status AfterStep(int64_t step, const at::Tensor& losses);

  // Prints the mean loss of at most 64 blocks, from number `first` on: the same on any number of ranks. `forward` calls
  // `net`, and gives the logits of tokens. All ranks call it equally often.
  absl::Status Evaluate(int64_t step, models::CausalLMImpl& net,
                        const std::function<at::Tensor(const at::Tensor& tokens)>& forward, const data::Dataset& blocks,
                        int64_t first);

 private:
  comm::ProcessGroup& group_;
  const int64_t steps_, step_tokens_;
  const at::ScalarType dtype_;
  const double token_share_;  // operations of a token, divided by the ones of the machine in a second
  int64_t printed_step_;
  absl::Time printed_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_REPORT_H_
