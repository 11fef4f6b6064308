#include "lockstep/checkpoint/pickle/refusals.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/text.h"

namespace lockstep::checkpoint::pickle {
namespace {

// In the syntax of KeyPath.
std::string Step(const PickleGraph& graph, const PickleNode& key) {
  switch (key.kind) {
    case PickleKind::kNone:
      return "[None]";
    case PickleKind::kBool:
      return key.boolean ? "[True]" : "[False]";
    case PickleKind::kInt:
      return absl::StrCat("[", key.integer, "]");
    case PickleKind::kDouble:
      return absl::StrCat("[", key.real, "]");
    case PickleKind::kString:
      return absl::StrCat("[", file::Quoted(graph.strings[key.index]), "]");
    case PickleKind::kBytes:
      return "[bytes]";
    case PickleKind::kUnset:
      return "[\"attributes\"]";
    default:
      return "[object]";
  }
}

bool First(std::vector<bool>& seen, uint32_t index) {
  const bool first = !seen[index];
  seen[index] = true;
  return first;
}

// Searches a graph breadth first. It does not recurse, since a pickle may nest to any depth.
class Search {
 public:
  explicit Search(const PickleGraph& graph)
      : graph_(graph),
        seen_sequences_(graph.sequences.size()),
        seen_dicts_(graph.dicts.size()),
        seen_objects_(graph.objects.size()) {}

  // Sets the index and the path of the first refused node. Returns false if there is none.
  bool Run(uint32_t& refusal, std::string& path) {
    Visit(graph_.root, 0, PickleNode(), false);
    for (size_t at = 0; at < places_.size(); ++at) {
      const Place place = places_[at];
      if (place.node.kind == PickleKind::kRefused) {
        refusal = place.node.index;
        path = PathTo(at);
        return true;
      }
      if (place.node.kind == PickleKind::kDict) {
        VisitDict(graph_.dicts[place.node.index], at);
      } else if (place.node.kind == PickleKind::kTensor) {
        VisitAttributes(graph_.tensors[place.node.index].attributes, at);
      } else if (place.node.kind == PickleKind::kObject) {
        VisitAttributes(graph_.objects[place.node.index].arguments, at);
        VisitAttributes(graph_.objects[place.node.index].state, at);
      } else {
        VisitItems(graph_.sequences[place.node.index], at);
      }
    }
    return false;
  }

 private:
  struct Place {
    PickleNode node;
    size_t parent;
    PickleNode step;
    bool is_key;
  };

  void Visit(PickleNode node, size_t parent, PickleNode step, bool is_key) {
    if (IsNew(node)) places_.push_back({node, parent, step, is_key});
  }

  // The nodes that are refused or may contain a refused object.
  bool IsNew(PickleNode node) {
    switch (node.kind) {
      case PickleKind::kList:
      case PickleKind::kTuple:
        return First(seen_sequences_, node.index);
      case PickleKind::kDict:
        return First(seen_dicts_, node.index);
      case PickleKind::kObject:
        return First(seen_objects_, node.index);
      case PickleKind::kTensor:
        return graph_.tensors[node.index].attributes.kind == PickleKind::kDict;
      default:
        return node.kind == PickleKind::kRefused;
    }
  }

  void VisitDict(const PickleDict& dict, size_t at) {
    for (const auto& [key, value] : dict.entries) {
      Visit(key, at, key, true);
      Visit(value, at, key, false);
    }
    VisitAttributes(dict.attributes, at);
  }

  void VisitItems(const std::vector<PickleNode>& items, size_t at) {
    for (size_t i = 0; i < items.size(); ++i) Visit(items[i], at, IntNode(static_cast<int64_t>(i)), false);
  }

  void VisitAttributes(PickleNode attributes, size_t parent) {
    PickleNode step;
    step.kind = PickleKind::kUnset;
    Visit(attributes, parent, step, false);
  }

  std::string PathTo(size_t at) const {
    constexpr int kMostSteps = 50;
    std::string path = places_[at].is_key ? ": a key" : "";
    int steps = 0;
    for (; at != 0 && steps < kMostSteps; at = places_[at].parent, ++steps) {
      if (!places_[at].is_key) path = absl::StrCat(Step(graph_, places_[at].step), path);
    }
    return at == 0 ? path : absl::StrCat("...", path);
  }

  const PickleGraph& graph_;
  std::vector<bool> seen_sequences_;
  std::vector<bool> seen_dicts_;
  std::vector<bool> seen_objects_;
  std::vector<Place> places_;
};

// Searches only the first keys: a small pickle could refer to one large dict many times.
bool BeginsLikeAModule(const PickleGraph& graph, PickleNode state) {
  constexpr size_t kFirst = 8;
  if (state.kind != PickleKind::kDict) return false;
  const auto& entries = graph.dicts[state.index].entries;
  return std::any_of(entries.begin(), entries.begin() + std::min(kFirst, entries.size()), [&](const auto& entry) {
    return entry.first.kind == PickleKind::kString && graph.strings[entry.first.index] == "_parameters";
  });
}

}  // namespace

bool IsRefusal(const absl::Status& status) { return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status); }

size_t CostOfRefusal(const absl::Status& status) { return 256 + 2 * status.message().size(); }

PickleNode AddRefusal(absl::Status status, size_t byte, PickleGraph& graph) {
  PickleNode node;
  node.kind = PickleKind::kRefused;
  node.index = static_cast<uint32_t>(graph.refused.size());
  graph.refused.emplace_back(std::move(status), byte);
  return node;
}

void SetStateOfRefusal(PickleNode object, PickleNode state, PickleGraph& graph) {
  if (object.kind != PickleKind::kRefused || !BeginsLikeAModule(graph, state)) return;
  absl::Status& status = graph.refused[object.index].first;
  const absl::string_view message = status.message();
  // For a known class the message already suggests what to save.
  if (!absl::StartsWith(message, "the Python object")) return;
  status = absl::InvalidArgumentError(
      absl::StrCat(message.substr(0, message.find(';')), "; it is a whole module: save module.state_dict()"));
}

absl::Status FirstRefusal(const PickleGraph& graph) {
  const auto& [status, byte] = graph.refused.front();
  return Annotate(status, absl::StrCat("byte ", byte));
}

absl::Status CheckRefused(const PickleGraph& graph) {
  uint32_t refusal = 0;
  std::string path;
  if (graph.refused.empty() || !Search(graph).Run(refusal, path)) return absl::OkStatus();
  const absl::Status& status = graph.refused[refusal].first;
  return path.empty() ? status : Annotate(status, absl::StripPrefix(path, ": "));
}

}  // namespace lockstep::checkpoint::pickle
