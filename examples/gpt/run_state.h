// The state of a training that outlives a group of ranks: the text, the model, its optimizers and the step.

#ifndef LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/data/tokens/token_dataset.h"
#include "lockstep/data/tokens/tokenizer.h"
#include "lockstep/elastic/sharded_model.h"
#include "lockstep/elastic/world.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::examples {

// Flags.
struct RunOptions {
  std::string model, data, tokenizer, optimizer;
  double learning_rate;
  int64_t virtual_ranks, batch_size, block, seed;
  bool shard;
};

class RunState {
 public:
  // Opens the text, and makes the model and its optimizers: AdamW with the decay 0.1 for matrices, and 0 for biases and
  // norms, or Muon for the layers' matrices, with rates that are matched to AdamW's. Gives `world` what changes, with
  // options.shard as pieces. Errors name the flag or the file.
  absl::Status Create(elastic::World& world, RunOptions options);

  void ZeroGrad();
  // Steps the optimizers with `share` of the learning rate, and counts the step.
  void Step(double share);

  // A checkpoint, on the rank that writes it.
  absl::StatusOr<checkpoint::Value> Checkpoint() const;
  // Loads the newest intact checkpoint in `folder`, if there is any. Errors name its file.
  absl::Status Resume(const std::string& folder);

  // The last twentieth of the blocks is not trained on.
  int64_t train_blocks() const { return blocks->size() - std::max<int64_t>(1, blocks->size() / 20); }

  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<data::TokenDataset> blocks;
  models::CausalLM net{nullptr};
  std::optional<elastic::ShardedModel<models::CausalLM>> sharded;  // of net, with RunOptions::shard
  int64_t step = 0;                                                // steps that are done
  std::string warning;                                             // of Resume(), for the user

 private:
  absl::Status Load(const checkpoint::Value& saved);
  absl::Status KeepModel(elastic::World& world);
  template <typename Optimizer>
  absl::Status Keep(elastic::World& world, const std::string& name, std::unique_ptr<Optimizer> optimizer);
  std::map<std::string, int64_t> SavedFlags() const;

  RunOptions options_;
  std::map<std::string, std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_RUN_STATE_H_
