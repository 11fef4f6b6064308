#ifndef LOCKSTEP_FSDP_OPTIONS_H_
#define LOCKSTEP_FSDP_OPTIONS_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::fsdp {

// The part of each parameter that a rank owns.
enum class Shard {
  // Slices of a unit's elements, cut at parameters and at multiples of 16 elements, so that every optimizer that steps
  // element by element has DistributedDataParallel's bits, the `fused` ones too.
  kElements,
  // Rows (of dimension 0) of each parameter, as Python's fully_shard cuts them. A shard has the parameter's other
  // dimensions. Rank r has rows [r * n, (r + 1) * n) with n = ceil(rows / world size).
  kRows,
};

// The ranks among which parameters, gradients and states are divided, by the names of PyTorch's ShardingStrategy.
enum class ShardingStrategy {
  // All ranks.
  kFullShard,
  // The ranks of each host, so that every host has all of them, and parameters are gathered within hosts only. The
  // ranks at one place of each host own the same shards, and step them to the same bits. Every host must have as many
  // ranks. On one host it is kFullShard.
  kHybridShard,
};

// Where the values of the parameters are.
enum class Residency {
  // kSharedPages if the parameters are on the CPU, and the ranks among which a unit is divided are on one host, over the
  // shm backend, or are one rank. Otherwise, and on a GPU always, kPaged.
  kAuto,
  // Once, in memory that all ranks of the host share. Every rank can read all parameters at any time.
  kSharedPages,
  // Each rank has its share in private memory. A unit's whole parameters are gathered from the ranks among which it is
  // divided when an operator uses one of them, and freed afterwards.
  kPaged,
};

// As Python's MixedPrecisionPolicy: shards(), which the optimizer steps, keep the dtype that the parameters had, and the
// rest is in smaller ones.
struct MixedPrecision {
  // The dtype of the module's parameters and their gradients in forward and backward. Tensors of floating-point numbers
  // that are given to forward are converted to it. Buffers keep their dtype.
  at::ScalarType param_dtype = at::kBFloat16;
  // The dtype in which gradients are averaged over the ranks, and added under NoSync. std::nullopt: param_dtype.
  std::optional<at::ScalarType> reduce_dtype;
};

struct Options {
  // Paths of modules whose parameters are one unit: they are reduced, and with Residency::kPaged gathered, together. In a
  // path, * stands for one name: "blocks.*". The parameters of a module inside belong to the first path that fits.
  // Parameters outside of all paths, and all if there is no path, are grouped in order by unit_bytes.
  std::vector<std::string> units;
  // The gradients of a unit larger than unit_bytes are reduced in chunks of about that size, so a buffer holds one chunk.
  // For each chunk a rank sends every other rank one message: with hundreds of ranks, raise it.
  int64_t unit_bytes = int64_t{25} << 20;

  Shard shard = Shard::kElements;

  ShardingStrategy sharding_strategy = ShardingStrategy::kFullShard;

  Residency residency = Residency::kAuto;
  // With kPaged: the number of units that stay whole in forward: the last ones in use. 1 needs less memory. It is as
  // fast if the network goes through its units one after the other, and slower if it uses two of them in turn.
  int whole_units = 2;

  // With kPaged, and whole_units of 2 or more: the unit that was used next in the last step is gathered while operators
  // use one. It is one of whole_units, so fewer that were used before stay.
  bool prefetch = true;

  // With kPaged: if code uses a freed parameter by its pointer (data_ptr, accessor, torch::save, a kernel that is called
  // directly), no operator is seen, and the process ends by SIGSEGV. With `debug`, a line on standard error says before
  // which parameter it was, and the thread's last operator. Bits and memory are the same. The parameters take as many bytes
  // of address space, and every operator takes longer. Ranks may differ in it. With kSharedPages parameters are never
  // freed, and it changes nothing. On a GPU it is refused: there is no SIGSEGV, and CUDA reports the access itself.
  bool debug = false;

  // All parameters must be of real floating-point numbers. Each rank then has its shards in private memory.
  std::optional<MixedPrecision> mixed_precision;

  // If positive, training gives the same bits on any number of ranks up to this one: see
  // FullyShardedDataParallel::VirtualRanks(). Must be at least the number of ranks, and the same on every rank.
  int virtual_ranks = 0;
  // With virtual_ranks: the seed of random numbers in forward, such as dropout's. The same on every rank.
  int64_t virtual_seed = 0;
};

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_OPTIONS_H_
