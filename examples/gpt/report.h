// The lines that a training prints.

#ifndef LOCKSTEP_EXAMPLES_GPT_REPORT_H_
#define LOCKSTEP_EXAMPLES_GPT_REPORT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/gpt/text.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::examples {

// The lines of one group of ranks, each of which calls all functions. Rank 0 prints.
class Report {
 public:
  struct Options {
    int64_t batch_tokens, block, steps;  // batch_tokens: of a step, over all ranks
    bool bf16;
  };

  // `group` is borrowed. Measures the machine for 0.2 s, the first time in a process. Prints what is trained.
  Report(comm::ProcessGroup& group, models::CausalLMImpl& net, int64_t step, const Options& options);

  // After `step` steps, each tenth and the last: prints the loss, tokens per second, and the model's share of the
  // products that the machine computes in that time. `losses`, double [virtual ranks], has this rank's of the last step,
  // and otherwise zeros.
  absl::Status AfterStep(int64_t step, const at::Tensor& losses);

  // Prints the mean loss of at most 64 of the blocks that are not trained on: the same on any number of ranks.
  absl::Status Evaluate(int64_t step, models::CausalLMImpl& net, const Text& text);

 private:
  comm::ProcessGroup& group_;
  const Options options_;
  const double token_flops_;    // of forward and backward
  const double machine_flops_;  // products and sums per second of all ranks
  int64_t printed_step_;
  absl::Time printed_ = absl::Now();
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_REPORT_H_
