// The C++ side of the peer test: peer_program COMMAND ARGUMENT...
//
//   whole FROM TO          loads the sharded checkpoint FROM whole and saves it to the .pt file TO
//   resave FROM TO RANKS   that many ranks each load a part of every tensor of FROM and save it to TO

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/sharded/load_whole.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

absl::Status Whole(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value whole, LoadWhole(from));
  return Save(to, whole);
}

// Cuts tensors alternately by rows and by columns. An entry that cannot be cut is None, which requests all of it.
ShardedEntry PartOf(const ShardedItem& item, size_t number, int rank, int ranks) {
  ShardedEntry entry{KeyPath(item.path), Value()};
  if (!item.is_tensor || item.sizes.empty()) return entry;
  const size_t dimension = number % item.sizes.size();
  const int64_t size = item.sizes[dimension];
  const int64_t start = size * rank / ranks, end = size * (rank + 1) / ranks;
  std::vector<int64_t> offsets(item.sizes.size(), 0), sizes = item.sizes;
  offsets[dimension] = start;
  sizes[dimension] = end - start;
  entry.value = ShardedTensor{item.sizes, {{offsets, at::empty(sizes, item.dtype)}}};
  return entry;
}

absl::Status ResaveOn(comm::ProcessGroup& group, const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardedMetadata metadata, ReadShardedMetadata(from));
  ShardedStateDict state;
  for (const ShardedItem& item : metadata.items)
    state.push_back(PartOf(item, state.size(), group.rank(), group.size()));
  LOCKSTEP_RETURN_IF_ERROR(LoadSharded(from, state, &group));
  return SaveSharded(to, state, &group);
}

absl::Status Resave(const std::string& from, const std::string& to, int ranks) {
  absl::Status first;
  const auto results =
      comm::testing::RunRanks(ranks, [&](comm::ProcessGroup& group) { return ResaveOn(group, from, to); });
  for (const absl::Status& result : results) first.Update(result);
  return first;
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "whole") return Whole(arguments[1], arguments[2]);
  if (arguments.size() == 4 && arguments[0] == "resave")
    return Resave(arguments[1], arguments[2], std::atoi(arguments[3].c_str()));
  return absl::InvalidArgumentError("usage: peer_program whole FROM TO | resave FROM TO RANKS");
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  const absl::Status status = lockstep::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
