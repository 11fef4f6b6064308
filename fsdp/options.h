#ifndef LOCKSTEP_FSDP_OPTIONS_H_
#define LOCKSTEP_FSDP_OPTIONS_H_

#include <cstdint>
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

struct Options {
  // Paths of modules whose parameters are one unit: they are reduced together. In a path, * stands for one name:
  // "blocks.*". The parameters of a module inside belong to the first path that fits. Parameters outside of all paths,
  // and all if there is no path, are grouped in order by unit_bytes.
  std::vector<std::string> units;
  int64_t unit_bytes = int64_t{25} << 20;

  Shard shard = Shard::kElements;

  // If positive, training gives the same bits on any number of ranks up to this one: see
  // FullyShardedDataParallel::VirtualRanks(). Must be at least the number of ranks, and the same on every rank.
  int virtual_ranks = 0;
  // With virtual_ranks: the seed of random numbers in forward, such as dropout's. The same on every rank.
  int64_t virtual_seed = 0;
};

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_OPTIONS_H_
