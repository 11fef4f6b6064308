#include "lockstep/models/exported/fuzz/damages.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep::models::exported::testing {
namespace {

using Json = nlohmann::ordered_json;
using Random = std::mt19937;

// A part of a document, with its place.
struct Part {
  Json* value;
  std::string path;

  absl::string_view key() const { return absl::string_view(path).substr(path.rfind('/') + 1); }
};

void Collect(Json& value, const std::string& path, std::vector<Part>& parts) {
  parts.push_back({&value, path});
  if (!value.is_structured()) return;
  size_t index = 0;
  for (auto it = value.begin(); it != value.end(); ++it, ++index)
    Collect(*it, absl::StrCat(path, "/", value.is_object() ? it.key() : absl::StrCat(index)), parts);
}

size_t Draw(Random& random, size_t count) { return random() % count; }

// Returns one of the parts for which `fits` is true.
std::optional<Part> DrawPart(Random& random, const std::vector<Part>& parts,
                             const std::function<bool(const Part&)>& fits) {
  std::vector<Part> fitting;
  for (const Part& part : parts)
    if (fits(part)) fitting.push_back(part);
  if (fitting.empty()) return std::nullopt;
  return fitting[Draw(random, fitting.size())];
}

// Each of these changes one part, and returns what it did and where; an empty text if there is no such part.
using Change = std::string (*)(Random&, const std::vector<Part>&);

std::string OtherType(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return !each.path.empty(); });
  if (!part) return {};
  const Json values[] = {nullptr, 7, "seven", true, Json::array(), Json::object(), 0.5};
  const Json::value_t type = part->value->type();
  Json other;
  do other = values[Draw(random, std::size(values))];
  while (other.type() == type || (other.is_number() && part->value->is_number()));
  *part->value = std::move(other);
  return absl::StrCat("another type at ", part->path);
}

std::string Missing(Random& random, const std::vector<Part>& parts) {
  const auto part =
      DrawPart(random, parts, [](const Part& each) { return each.value->is_object() && !each.value->empty(); });
  if (!part) return {};
  auto item = part->value->begin();
  for (size_t skipped = Draw(random, part->value->size()); skipped > 0; --skipped) ++item;
  const std::string key = item.key();
  part->value->erase(key);
  return absl::StrCat("no ", key, " at ", part->path);
}

// Not a list of a node's tensors or numbers, which may be longer.
std::string Repeated(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_array() && !each.value->empty() && !absl::StartsWith(each.key(), "as_");
  });
  if (!part) return {};
  const Json repeated = (*part->value)[Draw(random, part->value->size())];
  part->value->push_back(repeated);
  return absl::StrCat("a repeated item at ", part->path);
}

// In a tensor's description. Other numbers are arguments of operators, and make another program.
std::string HostileSize(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_number_integer() &&
           (absl::StrContains(each.path, "/sizes/") || absl::StrContains(each.path, "/strides/") ||
            absl::StrContains(each.path, "/storage_offset/") || each.key() == "dtype" || each.key() == "layout");
  });
  if (!part) return {};
  using Limits = std::numeric_limits<int64_t>;
  const Json sizes[] = {
      -1,   Limits::min(), Limits::max(), int64_t{1} << 40, int64_t{1} << 62, std::numeric_limits<uint64_t>::max(),
      1e300};
  *part->value = sizes[Draw(random, std::size(sizes))];
  return absl::StrCat("a hostile size at ", part->path);
}

std::string UnknownOperator(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return each.key() == "target"; });
  if (!part) return {};
  const char* const targets[] = {"torch.ops.aten.no_such_operator.default",
                                 "torch.ops.aten.linear.no_such_overload",
                                 "torch.ops.higher_order.no_such_operator",
                                 "torch.ops.aten.linear",
                                 "os.system",
                                 "_operator.no_such_function",
                                 "torch.ops...",
                                 ""};
  *part->value = targets[Draw(random, std::size(targets))];
  return absl::StrCat("an unknown operator at ", part->path);
}

// An input of a node becomes the node's own output, or a value that nothing computes.
std::string Cycle(Random& random, const std::vector<Part>& parts) {
  const auto node = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_object() && each.value->contains("target") && !(*each.value)["inputs"].empty();
  });
  if (!node) return {};
  std::vector<Part> inputs, outputs;
  Collect((*node->value)["inputs"], node->path, inputs);
  Collect((*node->value)["outputs"], node->path, outputs);
  const auto is_tensor_name = [](const Part& each) { return absl::EndsWith(each.path, "/as_tensor/name"); };
  const auto input = DrawPart(random, inputs, is_tensor_name), output = DrawPart(random, outputs, is_tensor_name);
  if (!input) return {};
  *input->value = output && Draw(random, 2) ? *output->value : Json("no_such_value");
  return absl::StrCat("a value before it is computed, at ", input->path);
}

std::string TooDeep(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return !each.path.empty(); });
  if (!part) return {};
  for (int depth = 0; depth < 1000; ++depth) {
    Json outer = Json::array();
    outer.push_back(std::move(*part->value));
    *part->value = std::move(outer);
  }
  return absl::StrCat("deep nesting at ", part->path);
}

}  // namespace

std::vector<Damage> DamagedJson(absl::string_view text, int count, unsigned seed) {
  const Json original = Json::parse(text.begin(), text.end());
  const Change changes[] = {OtherType, Missing, Repeated, HostileSize, UnknownOperator, Cycle, TooDeep};
  Random random(seed);
  std::vector<Damage> damages;
  while (static_cast<int>(damages.size()) < count) {
    Json copy = original;
    std::vector<Part> parts;
    Collect(copy, "", parts);
    std::string name = changes[Draw(random, std::size(changes))](random, parts);
    if (!name.empty()) damages.push_back({std::move(name), copy.dump()});
  }
  return damages;
}

}  // namespace lockstep::models::exported::testing
