#include "lockstep/models/exported/graph.h"

#include "absl/strings/str_cat.h"

namespace lockstep::models::exported {

std::string Node::Place() const {
  std::string place = absl::StrCat("node \"", name, "\" (", target, ")");
  if (!line.empty()) absl::StrAppend(&place, " at ", line);
  return place;
}

int64_t TreeSpec::LeafCount() const {
  if (kind == Kind::kLeaf) return 1;
  int64_t count = 0;
  for (const TreeSpec& child : children) count += child.LeafCount();
  return count;
}

}  // namespace lockstep::models::exported
