// A fully sharded model that outlives the ranks that train it.

#ifndef LOCKSTEP_ELASTIC_SHARDED_MODEL_H_
#define LOCKSTEP_ELASTIC_SHARDED_MODEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/kept_model.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::elastic {

// A module for fully sharded training (fsdp) whose shards a World keeps. Movable.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto model, elastic::ShardModel(Gpt(), {.units = {"blocks.*"}, .virtual_ranks = 8}));
//   elastic::ShardedOptimizer<optim::AdamW> optimizer(model.pieces(), optim::AdamWOptions(3e-4).fused(true));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", model));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
//   return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
//     LOCKSTEP_ASSIGN_OR_RETURN(auto net, model.Wrap(group));
//     while (step < kSteps) {
//       for (const int v : net.VirtualRanks(step)) Loss(net, step, v).backward();
//       LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
//         optimizer.step();
//         ++step;
//       }));
//     }
//     return absl::OkStatus();
//   });
//
// The parameters are cut into pieces, which do not depend on the number of ranks. Each piece, its value and its
// optimizer's state, is in the private memory of two ranks, on two hosts if there are several. Both step it, and so have
// the same bits. Forward and backward read a copy. If the ranks share memory (shm), one of the two ranks copies the value
// to pages that all read. Otherwise it is gathered with the others of its unit when the unit is used. If a rank dies at
// any moment, the next group makes new copies, and nothing reads the old ones. If a rank comes or dies, ranks give each
// other pieces from their memory, until each is on two ranks again.
//
// With optimizers that step element by element, all steps have the bits of ddp::DistributedDataParallel with as many
// virtual ranks, whatever dies.
template <typename Net>
class ShardedModel {
 public:
  // All pieces, flat, in the order of the parameters: what the optimizers step. Once World::Run() has been called, pieces
  // that this rank does not keep have no elements. Before, all are views of the parameters, so a checkpoint may be loaded
  // into the module. Each must be in exactly one ShardedOptimizer that the same World keeps.
  const std::vector<at::Tensor>& pieces() const { return kept_->pieces(); }
  // Their parameters' names, to choose groups of the optimizer by.
  const std::vector<std::string>& piece_names() const { return kept_->piece_names(); }

  // Wraps the module as fsdp::Wrap() does, and returns its errors. Call it in the function that World::Run() calls, on
  // every rank of its group. The result must end with that call of the function, and the parameters are valid in it only.
  // If the ranks share memory they are whole. Otherwise they are so in forward and backward, within FullParameters(), and
  // on rank `to` after World::GatherShards(to), until the next forward or Commit(). World::Commit() does the work of the
  // result's Step(): it waits for the gradients before it calls `apply`, and publishes the parameters after it.
  // ClipGradNorm() may be called before Commit().
  absl::StatusOr<fsdp::FullyShardedDataParallel<Net>> Wrap(comm::ProcessGroup* group) {
    return fsdp::Wrap(net_, group, options_, kept_->shards());
  }

  Net& module() { return net_; }

 private:
  template <typename T>
  friend absl::StatusOr<ShardedModel<T>> ShardModel(T, fsdp::Options, int64_t);
  friend class World;

  ShardedModel(Net net, fsdp::Options options, std::unique_ptr<internal::KeptModel> kept)
      : net_(std::move(net)), options_(std::move(options)), kept_(std::move(kept)) {}

  Net net_;
  fsdp::Options options_;
  std::unique_ptr<internal::KeptModel> kept_;
};

// Before World::Run(), on every rank alike. `net` is a module holder (TORCH_MODULE) or a std::shared_ptr to a module.
// `piece_elements`: the most elements of a piece. Ranks' shares differ by one piece at most. InvalidArgument: no
// parameter requires gradients, options.shard is kRows, options.sharding_strategy is kHybridShard, or `piece_elements`
// is not a multiple of 16.
template <typename Net>
absl::StatusOr<ShardedModel<Net>> ShardModel(Net net, fsdp::Options options = {},
                                             int64_t piece_elements = int64_t{1} << 18) {
  if (options.shard != fsdp::Shard::kElements)
    return absl::InvalidArgumentError(
        "ShardModel: expected Shard::kElements, since rows depend on the number of ranks");
  if (options.sharding_strategy != fsdp::ShardingStrategy::kFullShard)
    return absl::InvalidArgumentError(
        "ShardModel: expected ShardingStrategy::kFullShard, since each piece is on two of all ranks");
  LOCKSTEP_ASSIGN_OR_RETURN(auto kept, internal::KeptModel::Create(*net, piece_elements));
  return ShardedModel<Net>(std::move(net), std::move(options), std::move(kept));
}

}  // namespace lockstep::elastic

#endif  // LOCKSTEP_ELASTIC_SHARDED_MODEL_H_
