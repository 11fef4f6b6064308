#include "lockstep/fsdp/internal/unit_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lockstep::fsdp::internal {
namespace {

using Names = std::vector<std::string>;

// True if the path's names are the first ones of the parameter's, which has at least one more.
bool Fits(const Names& path, const Names& parameter) {
  if (path.size() >= parameter.size()) return false;
  return std::equal(path.begin(), path.end(), parameter.begin(),
                    [](const std::string& a, const std::string& b) { return a == "*" || a == b; });
}

int64_t RoundUp(int64_t n, int64_t multiple = 16) { return (n + multiple - 1) / multiple * multiple; }

// The elements of a parameter's rows that each rank owns, but for the last ranks, which may own fewer.
int64_t ChunkOf(const ParameterInfo& parameter, int ranks) {
  const int64_t row = parameter.rows == 0 ? 0 : parameter.numel / parameter.rows;
  return (parameter.rows + ranks - 1) / ranks * row;
}

// Rank `rank`'s elements of a parameter: [begin, end). `offset` is the parameter's in the unit's memory, of which each
// rank owns `share` elements.
std::pair<int64_t, int64_t> OwnElements(const ParameterInfo& parameter, int64_t offset, int64_t share, int rank,
                                        int ranks, Shard shard) {
  if (shard == Shard::kRows) {
    const int64_t chunk = ChunkOf(parameter, ranks);
    return {std::min(parameter.numel, rank * chunk), std::min(parameter.numel, (rank + 1) * chunk)};
  }
  return {std::clamp<int64_t>(rank * share - offset, 0, parameter.numel),
          std::clamp<int64_t>((rank + 1) * share - offset, 0, parameter.numel)};
}

UnitLayout WithoutPieces(const std::vector<ParameterInfo>& parameters) {
  UnitLayout layout;
  for (const ParameterInfo& parameter : parameters) {
    layout.offsets.push_back(layout.numel);
    layout.numel += RoundUp(parameter.numel);
  }
  layout.slices.push_back(0);
  return layout;
}

// The end of the layout's buffer of gradients.
int64_t EndOf(const UnitLayout& layout) { return layout.pieces.empty() ? 0 : layout.pieces.back().flag() + 16; }

}  // namespace

int64_t UnitLayout::ChunkNumel(int64_t numel) const { return RoundUp((numel + chunks - 1) / chunks); }

void CutIntoChunks(int64_t most, int replicas, UnitLayout* layout) {
  std::vector<int64_t> parts;  // that the ranks add up
  for (size_t rank = 0; rank + 1 < layout->slices.size(); ++rank)
    parts.push_back((layout->slices[rank + 1] - layout->slices[rank]) / replicas);
  const int64_t largest = std::max<int64_t>(16, *std::max_element(parts.begin(), parts.end()));
  layout->chunks = static_cast<int>(std::max<int64_t>(1, (layout->slices.back() + most - 1) / most));
  const int64_t numel = layout->ChunkNumel(largest);
  layout->chunks = static_cast<int>((largest + numel - 1) / numel);  // so that the last one is not empty
  layout->chunk_numel = 0;
  for (const int64_t part : parts) layout->chunk_numel += replicas * layout->ChunkNumel(part);
}

absl::StatusOr<std::vector<std::vector<int>>> PlanUnits(const std::vector<ParameterInfo>& parameters,
                                                        const Options& options) {
  if (options.unit_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("unit_bytes ", options.unit_bytes, ": expected 1 or more"));
  }
  std::vector<Names> paths;
  for (const std::string& path : options.units) paths.push_back(absl::StrSplit(path, '.'));
  std::vector<bool> used(paths.size(), false);
  using Kind = std::pair<int, bool>;                       // a dtype, and true for parameters that are trained
  std::map<std::pair<std::string, Kind>, size_t> modules;  // to the unit of a path and kind
  std::map<Kind, std::pair<size_t, int64_t>> open;         // by kind, the unit that is filled by size, and its bytes
  std::vector<std::vector<int>> units;
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    const ParameterInfo& parameter = parameters[i];
    const Kind kind{parameter.dtype, parameter.trained};
    const Names names = absl::StrSplit(parameter.name, '.');
    const auto path = std::find_if(paths.begin(), paths.end(), [&](const Names& p) { return Fits(p, names); });
    if (path != paths.end()) {
      used[path - paths.begin()] = true;
      const std::string module = absl::StrJoin(names.begin(), names.begin() + path->size(), ".");
      const auto [found, is_new] = modules.try_emplace({module, kind}, units.size());
      if (is_new) units.emplace_back();
      units[found->second].push_back(i);
      continue;
    }
    const int64_t bytes = parameter.numel * parameter.element_bytes;
    const auto found = open.find(kind);
    if (found == open.end() || found->second.second + bytes > options.unit_bytes) {
      open[kind] = {units.size(), 0};
      units.emplace_back();
    }
    auto& [unit, unit_bytes] = open[kind];
    units[unit].push_back(i);
    unit_bytes += bytes;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("units: no parameter is inside of a module \"", options.units[i], "\""));
  }
  return units;
}

UnitLayout LayOut(const std::vector<ParameterInfo>& parameters, int ranks, Shard shard, int replicas) {
  UnitLayout layout = WithoutPieces(parameters);
  if (shard == Shard::kRows) {
    for (const ParameterInfo& parameter : parameters) layout.share += RoundUp(ChunkOf(parameter, ranks));
  }
  layout.in_order = shard == Shard::kElements;
  if (layout.in_order) layout.share = RoundUp((layout.numel + ranks - 1) / ranks);
  layout.share = std::max<int64_t>(layout.share, 16);
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t in_share = 0, offset = layout.slices.back();
    for (int k = 0; k < static_cast<int>(parameters.size()); ++k) {
      const auto [begin, end] = OwnElements(parameters[k], layout.offsets[k], layout.share, rank, ranks, shard);
      if (begin == end) continue;
      if (layout.in_order) in_share = layout.offsets[k] + begin - rank * layout.share;
      layout.pieces.push_back({rank, k, begin, end, offset, in_share});
      in_share += RoundUp(end - begin);
      offset = layout.pieces.back().flag() + 16;
    }
    layout.slices.push_back(layout.slices.back() + RoundUp(offset - layout.slices.back(), 16 * replicas));
  }
  return layout;
}

UnitLayout LayOut(const std::vector<ParameterInfo>& parameters, int ranks, const std::vector<KeptPiece>& kept) {
  UnitLayout layout = WithoutPieces(parameters);
  layout.in_order = false;
  layout.share = 16;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t in_share = 0;
    for (const KeptPiece& piece : kept) {
      if (rank != piece.owner && rank != piece.second) continue;
      const bool is_second = rank != piece.owner;
      layout.pieces.push_back({rank, piece.parameter, piece.begin, piece.end, EndOf(layout), in_share, is_second});
      if (!is_second) in_share += RoundUp(piece.end - piece.begin);
    }
    layout.share = std::max(layout.share, in_share);
    layout.slices.push_back(EndOf(layout));
  }
  return layout;
}

}  // namespace lockstep::fsdp::internal
