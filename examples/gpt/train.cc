// Trains a GPT on text: bazel run //examples/gpt:train
//   ... -- --checkpoint_dir=/tmp/gpt                     # run it again to resume; model.safetensors is there at the end
//   ... -- --checkpoint_dir=/tmp/gpt --shard             # each rank has a part of the model; the same file
//   ... -- --model=FOLDER --data=a.txt,b.txt             # goes on with a folder of Hugging Face's
// Kill any rank meanwhile: the others go on, and the file is the same.

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/example.h"
#include "lockstep/data/step_loader.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/gpt/report.h"
#include "lockstep/examples/gpt/run_state.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/pretrained.h"
#include "lockstep/models/transformer/text_generation.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_int32(virtual_ranks, 8, "The most ranks. Any number up to it gives the same model. Each has a part of a batch.");
DEFINE_int64(steps, 400, "Steps of the optimizer.");
DEFINE_int64(batch_size, 32, "Blocks of tokens per step, over all ranks: a multiple of --virtual_ranks.");
DEFINE_int64(block, 128, "Tokens of a block.");
DEFINE_string(data, "", "Texts, or tokens (.bin), with commas between them. Empty: the King James Bible.");
DEFINE_string(tokenizer, "bytes", "How texts become tokens: bytes, or the file of a sentencepiece model.");
DEFINE_string(model, "",
              "A folder of Hugging Face's with config.json and, to go on with, weights. Empty: a small GPT-2.");
DEFINE_string(optimizer, "adamw", "adamw, or muon for the layers' matrices and adamw for the rest.");
DEFINE_double(learning_rate, 3e-3, "The highest rate.");
DEFINE_int64(warmup_steps, 40, "Steps in which the rate rises. Then it falls as a cosine, to a tenth.");
DEFINE_double(clip, 1, "The largest norm of the gradients. 0: any.");
DEFINE_bool(bf16, false, "Compute in bfloat16, by autocast.");
DEFINE_bool(recompute, false, "Keep no activations of layers: compute them again in backward.");
DEFINE_bool(shard, false, "Divide parameters, gradients and the optimizer's state among the ranks.");
DEFINE_int64(seed, 0, "The seed of weights, dropout, the order of blocks and the sample.");
DEFINE_string(checkpoint_dir, "",
              "The folder of checkpoints and of the trained model. The newest is resumed. Empty: none.");
DEFINE_int64(save_every, 100, "Steps between two checkpoints, and two looks at text that is not trained on.");

namespace lockstep::examples {
namespace {

using models::CausalLM;

// The share of the highest rate: it rises evenly, and falls as half a cosine. A formula of the step alone, so --steps may
// change when the run is resumed, which a checkpoint::LRScheduler's state does not allow.
double LearningRateShare(int64_t step) {
  if (step < FLAGS_warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(FLAGS_warmup_steps);
  const auto done = static_cast<double>(step - FLAGS_warmup_steps);
  return 0.55 + 0.45 * std::cos(M_PI * done / static_cast<double>(FLAGS_steps - FLAGS_warmup_steps));
}

absl::Status Clip(comm::ProcessGroup& group, ddp::DistributedDataParallel<CausalLM>& net) {
  return ddp::ClipGradNorm(group, net.parameters(), FLAGS_clip).status();
}
absl::Status Clip(comm::ProcessGroup&, fsdp::FullyShardedDataParallel<CausalLM>& net) {
  return net.ClipGradNorm(FLAGS_clip).status();
}

// For evaluation. A sharded net gathers its parameters only when it is called itself.
at::Tensor Logits(ddp::DistributedDataParallel<CausalLM>& net, const at::Tensor& tokens) {
  return net.module()(tokens);
}
at::Tensor Logits(fsdp::FullyShardedDataParallel<CausalLM>& net, const at::Tensor& tokens) { return net(tokens); }

// Computes a step's gradients, and writes the loss of each virtual rank of this rank.
template <typename Wrapped>
void Backward(RunState& run, Wrapped& net, data::StepLoader& batches, const at::Tensor& losses) {
  run.ZeroGrad();
  for (const int virtual_rank : net.VirtualRanks(run.step)) {
    const data::Example batch = batches.Next(run.step);
    at::Tensor loss;
    {
      const ddp::Autocast autocast(at::kCPU, at::kBFloat16, FLAGS_bf16);
      loss = models::NextTokenLoss(net(batch.data), batch.target);
    }
    loss.backward();  // averages the gradients over the ranks, in the last virtual rank
    losses[virtual_rank] = loss.detach();
  }
}

absl::Status Save(elastic::World& world, const RunState& run, checkpoint::Manager* manager) {
  if (!manager) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(world.GatherShards());
  if (world.generation().rank != 0) return manager->Save(run.step, {});
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value saved, run.Checkpoint());
  return manager->Save(run.step, saved);
}

// Trains with one group of ranks, from the run's step to the last one. `net` has wrapped the run's.
template <typename Wrapped>
absl::Status TrainWith(elastic::World& world, RunState& run, comm::ProcessGroup& group, Wrapped net) {
  const auto order = FLAGS_shard ? sampler::VirtualRankOrder::kRoundRobin : sampler::VirtualRankOrder::kBlocks;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto batches, data::StepLoader::Create(run.blocks.get(), group.rank(), group.size(),
                                                                         {.batch_size = FLAGS_batch_size,
                                                                          .virtual_ranks = FLAGS_virtual_ranks,
                                                                          .order = order,
                                                                          .seed = FLAGS_seed,
                                                                          .examples = run.train_blocks()}));
  std::unique_ptr<checkpoint::Manager> manager;
  if (!FLAGS_checkpoint_dir.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        manager, checkpoint::Manager::Create(FLAGS_checkpoint_dir, &group, {.independent_of_ranks = true}));
  }
  const auto is_saved = [&run] {
    return run.step > 0 && (run.step % FLAGS_save_every == 0 || run.step == FLAGS_steps);
  };
  // The ranks before may have ended between a step and its checkpoint.
  if (is_saved()) LOCKSTEP_RETURN_IF_ERROR(Save(world, run, manager.get()));
  const at::ScalarType dtype = FLAGS_bf16 ? at::kBFloat16 : at::kFloat;
  Report report(group, *run.net, dtype, run.step, FLAGS_steps, FLAGS_batch_size, FLAGS_block);
  while (run.step < FLAGS_steps) {
    const at::Tensor losses = at::zeros({FLAGS_virtual_ranks}, at::kDouble);
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { Backward(run, net, *batches, losses); }));
    if (FLAGS_clip > 0) LOCKSTEP_RETURN_IF_ERROR(Clip(group, net));
    LOCKSTEP_RETURN_IF_ERROR(world.Commit([&] { run.Step(LearningRateShare(run.step)); }));
    LOCKSTEP_RETURN_IF_ERROR(report.AfterStep(run.step, losses));
    if (!is_saved()) continue;
    const auto forward = [&net](const at::Tensor& tokens) { return Logits(net, tokens); };
    LOCKSTEP_RETURN_IF_ERROR(report.Evaluate(run.step, *run.net, forward, *run.blocks, run.train_blocks()));
    LOCKSTEP_RETURN_IF_ERROR(Save(world, run, manager.get()));
  }
  // With a manager, Save() has gathered them.
  if (!manager) LOCKSTEP_RETURN_IF_ERROR(world.GatherShards(0, /*with_states=*/false));
  if (group.rank() != 0) return absl::OkStatus();  // World waits for rank 0. If it dies, this function runs again.
  if (manager) LOCKSTEP_RETURN_IF_ERROR(models::SavePretrained(FLAGS_checkpoint_dir, *run.net, run.net->config()));
  const models::SamplingOptions options = {.temperature = 0.8, .seed = static_cast<uint64_t>(FLAGS_seed)};
  return models::GenerateText(run.net, *run.tokenizer, "In the beginning ", options, std::cout);
}

absl::Status Train() {
  torch::set_num_threads(1);  // their number affects rounding
  torch::manual_seed(FLAGS_seed);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join({.max_ranks = FLAGS_virtual_ranks}));
  RunState run;
  LOCKSTEP_RETURN_IF_ERROR(
      run.Create(*world, {FLAGS_model, FLAGS_data, FLAGS_tokenizer, FLAGS_optimizer, FLAGS_learning_rate,
                          FLAGS_virtual_ranks, FLAGS_batch_size, FLAGS_block, FLAGS_seed, FLAGS_shard}));
  run.net->set_recompute(FLAGS_recompute);
  if (!FLAGS_checkpoint_dir.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(run.Resume(FLAGS_checkpoint_dir));
    if (run.step > FLAGS_steps)
      return FlagError("steps", FLAGS_steps, absl::StrCat("at least ", run.step, ", the checkpoint's step"));
    LOCKSTEP_RETURN_IF_ERROR(world->BeginAt(run.step));
  }
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    if (world->commits() == 0 && !run.warning.empty()) Say(*group, run.warning);
    if (FLAGS_shard) {
      LOCKSTEP_ASSIGN_OR_RETURN(auto sharded, run.sharded->Wrap(group));
      return TrainWith(*world, run, *group, std::move(sharded));
    }
    const ddp::Options wrapped = {.virtual_ranks = FLAGS_virtual_ranks, .virtual_seed = FLAGS_seed};
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(run.net, group, wrapped));
    return TrainWith(*world, run, *group, std::move(ddp));
  });
}

absl::Status Main() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1, FLAGS_virtual_ranks * 1.0},
                                        {"learning_rate", FLAGS_learning_rate, 0},
                                        {"warmup_steps", FLAGS_warmup_steps * 1.0, 0},
                                        {"clip", FLAGS_clip, 0}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckMultiple("batch_size", FLAGS_batch_size, FLAGS_virtual_ranks));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("optimizer", FLAGS_optimizer, {"adamw", "muon"}));
  if (FLAGS_shard && FLAGS_optimizer != "adamw") return FlagError("optimizer", FLAGS_optimizer, "adamw with --shard");
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return Train(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  const lockstep::ProgramUsage usage = {.source = __FILE__, .description = "Trains a GPT on text."};
  return ExampleMain(argc, argv, usage, {"virtual_ranks", "steps", "batch_size", "block", "save_every"}, Main);
}
