// The things that outlive a group of ranks.

#ifndef LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/elastic/sharded_model.h"
#include "lockstep/elastic/world.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::examples {

// The share of the highest learning rate in a step: it rises evenly in the first `warmup` steps, and then falls as half a
// cosine to a tenth.
double LearningRateShare(int64_t step, int64_t warmup, int64_t steps);

struct RunOptions {
  std::string optimizer;  // adamw, or muon for the layers' matrices and adamw for the rest
  double learning_rate;
  bool shard;
  int virtual_ranks;
  int64_t seed;
  // The flags that must be the same when the run is resumed.
  std::vector<std::pair<std::string, int64_t>> saved_flags;
};

// A model and its optimizers: AdamW with the decay 0.1 for matrices, and 0 for biases and norms. Muon's rates are matched
// to AdamW's.
class RunState {
 public:
  // Gives them and `step` to `world`, with options.shard as pieces.
  absl::Status Keep(elastic::World& world, models::CausalLM model, RunOptions options);

  void ZeroGrad();
  // Steps the optimizers with `share` of the learning rate, and counts the step.
  void Step(double share);

  // A checkpoint, on the rank that writes it.
  absl::StatusOr<checkpoint::Value> Checkpoint() const;
  absl::Status Resume(const checkpoint::Restored& newest);

  int64_t step = 0;  // steps that are done
  models::CausalLM net{nullptr};
  std::optional<elastic::ShardedModel<models::CausalLM>> sharded;  // of net, with RunOptions::shard

 private:
  absl::Status KeepSharded(elastic::World& world);

  RunOptions options_;
  std::vector<std::pair<std::string, std::unique_ptr<torch::optim::Optimizer>>> optimizers_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_
