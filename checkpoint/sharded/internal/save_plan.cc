#include "lockstep/checkpoint/sharded/internal/save_plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"

namespace lockstep::checkpoint::internal {
namespace {

// An item, gathered from all ranks.
struct Gathered {
  ShardedItem item;
  int rank = 0;                           // the first that has it, or has a part
  std::vector<std::vector<int>> holders;  // of each part, ascending
  absl::flat_hash_map<std::vector<int64_t>, size_t> by_offsets;
};

std::string Kind(const ShardedItem& item) {
  if (!item.is_tensor) return "a plain value";
  return absl::StrCat(item.chunks.empty() ? "" : c10::toString(item.dtype), " ", ToString(item.sizes));
}

bool SameKind(const ShardedItem& a, const ShardedItem& b) {
  // A rank without a part does not know the dtype.
  const bool dtypes = a.dtype == b.dtype || a.chunks.empty() || b.chunks.empty();
  return a.is_tensor == b.is_tensor && a.sizes == b.sizes && dtypes;
}

class Planner {
 public:
  absl::Status Add(int rank, const ShardedMetadata& metadata);
  absl::StatusOr<SavePlan> Finish(size_t ranks) &&;

 private:
  absl::Status AddItem(int rank, const ShardedItem& item, Gathered& gathered);
  absl::Status CheckParts(const Gathered& gathered) const;

  std::vector<Gathered> gathered_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

absl::Status Planner::AddItem(int rank, const ShardedItem& item, Gathered& gathered) {
  if (!SameKind(item, gathered.item)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " has ", Kind(item), ", rank ", gathered.rank, " has ", Kind(gathered.item)));
  }
  if (gathered.item.chunks.empty() && !item.chunks.empty()) {
    gathered.rank = rank;
    gathered.item.dtype = item.dtype;
    gathered.item.requires_grad = item.requires_grad;
  }
  for (const ShardedChunk& chunk : item.chunks) {
    const auto [found, added] = gathered.by_offsets.try_emplace(chunk.box.offsets, gathered.item.chunks.size());
    const size_t at = found->second;
    if (!added && !(gathered.item.chunks[at].box == chunk.box)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, "'s part ", ToString(chunk.box), " and rank ",
                                                     gathered.holders[at].front(), "'s ",
                                                     ToString(gathered.item.chunks[at].box), " overlap"));
    }
    if (added) {
      gathered.item.chunks.push_back({chunk.box, "", 0, 0});
      gathered.holders.emplace_back();
    }
    gathered.holders[at].push_back(rank);
  }
  return absl::OkStatus();
}

absl::Status Planner::Add(int rank, const ShardedMetadata& metadata) {
  for (const ShardedItem& item : metadata.items) {
    const auto [found, added] = by_name_.try_emplace(item.name, gathered_.size());
    if (added) {
      gathered_.emplace_back();
      gathered_.back().item = item;
      gathered_.back().item.chunks.clear();
      gathered_.back().rank = rank;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(AddItem(rank, item, gathered_[found->second]), absl::StrCat("item \"", item.name, "\"")));
  }
  return absl::OkStatus();
}

absl::Status Planner::CheckParts(const Gathered& gathered) const {
  std::vector<Box> boxes;
  int64_t covered = 0;
  for (const ShardedChunk& chunk : gathered.item.chunks) {
    boxes.push_back(chunk.box);
    covered += ElementsOf(chunk.box.sizes);
  }
  if (const auto overlap = FindOverlap(boxes)) {
    const auto [a, b] = *overlap;
    return absl::InvalidArgumentError(absl::StrCat("rank ", gathered.holders[a].front(), "'s part ", ToString(boxes[a]),
                                                   " and rank ", gathered.holders[b].front(), "'s ", ToString(boxes[b]),
                                                   " overlap"));
  }
  const int64_t all = ElementsOf(gathered.item.sizes);
  if (covered == all && !boxes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("all ranks together have ", covered, " of its ", all, " elements ", ToString(gathered.item.sizes)));
}

absl::StatusOr<SavePlan> Planner::Finish(size_t ranks) && {
  SavePlan plan;
  std::vector<int64_t> bytes(ranks, 0);
  for (Gathered& gathered : gathered_) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckParts(gathered), absl::StrCat("item \"", gathered.item.name, "\"")));
    std::vector<int>& writers = plan.writers.emplace_back();
    for (size_t i = 0; i < gathered.holders.size(); ++i) {
      const int writer = *std::min_element(gathered.holders[i].begin(), gathered.holders[i].end(),
                                           [&](int a, int b) { return bytes[a] < bytes[b]; });
      const ShardedItem& item = gathered.item;
      bytes[writer] += item.is_tensor ? ElementsOf(item.chunks[i].box.sizes) * c10::elementSize(item.dtype) : 1;
      writers.push_back(writer);
    }
    plan.whole.items.push_back(std::move(gathered.item));
    plan.holders.push_back(std::move(gathered.holders));
  }
  return plan;
}

std::string Ranks(const std::vector<int>& ranks) {
  constexpr size_t kListed = 8;
  const size_t listed = std::min(kListed, ranks.size());
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks.begin(), ranks.begin() + listed, ", "),
                      listed < ranks.size() ? absl::StrCat(" and ", ranks.size() - listed, " more ranks") : "");
}

std::string Difference(const ShardedItem& item, size_t part, const std::vector<int>& same,
                       const std::vector<int>& other) {
  const Box& box = item.chunks[part].box;
  const bool is_part = item.chunks.size() > 1 || box.sizes != item.sizes;
  return absl::StrCat("item \"", item.name, "\"", is_part ? absl::StrCat(", part ", ToString(box)) : "", ": ",
                      Ranks(other), "'s contents differ from ", Ranks(same), "'s");
}

}  // namespace

absl::StatusOr<SavePlan> MakeSavePlan(const std::vector<ShardedMetadata>& ranks) {
  Planner planner;
  for (size_t rank = 0; rank < ranks.size(); ++rank) LOCKSTEP_RETURN_IF_ERROR(planner.Add(rank, ranks[rank]));
  return std::move(planner).Finish(ranks.size());
}

absl::Status CheckSameContents(const SavePlan& plan, const std::vector<std::vector<uint32_t>>& hashes) {
  std::vector<size_t> next(hashes.size(), 0);
  std::string first;
  int items = 0;
  for (size_t i = 0; i < plan.holders.size(); ++i) {
    bool differs = false;
    for (size_t j = 0; j < plan.holders[i].size(); ++j) {
      const std::vector<int>& holders = plan.holders[i][j];
      if (holders.size() < 2) continue;
      std::vector<int> same, other;
      const auto hash = [&](int rank) { return hashes[rank][next[rank]]; };
      for (const int rank : holders) (hash(rank) == hash(holders[0]) ? same : other).push_back(rank);
      for (const int rank : holders) ++next[rank];
      if (other.empty()) continue;
      differs = true;
      if (first.empty()) first = Difference(plan.whole.items[i], j, same, other);
    }
    items += differs ? 1 : 0;
  }
  if (items == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      first,
      items == 1 ? "" : absl::StrCat(", and ", items - 1, items == 2 ? " more item's" : " more items'", " differ"),
      "; what several ranks pass under one name must be equal: broadcast it, pass it on one rank, or use a name per "
      "rank"));
}

}  // namespace lockstep::checkpoint::internal
