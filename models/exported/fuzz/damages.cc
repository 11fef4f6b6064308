#include "lockstep/models/exported/fuzz/damages.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <utility>

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

// One part with another value.
struct Edit {
  std::string name;
  Json* at;
  Json value;
};

// Each of these draws an edit. nullopt: no part fits.
using Change = std::optional<Edit> (*)(Random&, const std::vector<Part>&);

std::optional<Edit> OtherType(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return !each.path.empty(); });
  if (!part) return std::nullopt;
  const Json values[] = {nullptr, 7, "seven", true, Json::array(), Json::object(), 0.5};
  const Json::value_t type = part->value->type();
  Json other;
  do other = values[Draw(random, std::size(values))];
  while (other.type() == type || (other.is_number() && part->value->is_number()));
  return Edit{absl::StrCat("another type at ", part->path), part->value, std::move(other)};
}

std::optional<Edit> Missing(Random& random, const std::vector<Part>& parts) {
  const auto part =
      DrawPart(random, parts, [](const Part& each) { return each.value->is_object() && !each.value->empty(); });
  if (!part) return std::nullopt;
  auto item = part->value->begin();
  for (size_t skipped = Draw(random, part->value->size()); skipped > 0; --skipped) ++item;
  const std::string key = item.key();
  Json without = *part->value;
  without.erase(key);
  return Edit{absl::StrCat("no ", key, " at ", part->path), part->value, std::move(without)};
}

// Not a list of a node's tensors or numbers, which may be longer.
std::optional<Edit> Repeated(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_array() && !each.value->empty() && !absl::StartsWith(each.key(), "as_");
  });
  if (!part) return std::nullopt;
  Json longer = *part->value;
  longer.push_back((*part->value)[Draw(random, part->value->size())]);
  return Edit{absl::StrCat("a repeated item at ", part->path), part->value, std::move(longer)};
}

// In a tensor's description. Other numbers are arguments of operators, and make another program.
std::optional<Edit> HostileSize(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_number_integer() &&
           (absl::StrContains(each.path, "/sizes/") || absl::StrContains(each.path, "/strides/") ||
            absl::StrContains(each.path, "/storage_offset/") || each.key() == "dtype" || each.key() == "layout");
  });
  if (!part) return std::nullopt;
  using Limits = std::numeric_limits<int64_t>;
  const Json sizes[] = {
      -1,   Limits::min(), Limits::max(), int64_t{1} << 40, int64_t{1} << 62, std::numeric_limits<uint64_t>::max(),
      1e300};
  return Edit{absl::StrCat("a hostile size at ", part->path), part->value, sizes[Draw(random, std::size(sizes))]};
}

std::optional<Edit> UnknownOperator(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return each.key() == "target"; });
  if (!part) return std::nullopt;
  const char* const targets[] = {"torch.ops.aten.no_such_operator.default",
                                 "torch.ops.aten.linear.no_such_overload",
                                 "torch.ops.higher_order.no_such_operator",
                                 "torch.ops.aten.linear",
                                 "os.system",
                                 "_operator.no_such_function",
                                 "torch.ops...",
                                 ""};
  const char* const target = targets[Draw(random, std::size(targets))];
  return Edit{absl::StrCat("an unknown operator at ", part->path), part->value, target};
}

// An input of a node becomes the node's own output, or a value that nothing computes.
std::optional<Edit> Cycle(Random& random, const std::vector<Part>& parts) {
  const auto node = DrawPart(random, parts, [](const Part& each) {
    return each.value->is_object() && each.value->contains("target") && !(*each.value)["inputs"].empty();
  });
  if (!node) return std::nullopt;
  std::vector<Part> inputs, outputs;
  Collect((*node->value)["inputs"], node->path, inputs);
  Collect((*node->value)["outputs"], node->path, outputs);
  const auto is_tensor_name = [](const Part& each) { return absl::EndsWith(each.path, "/as_tensor/name"); };
  const auto input = DrawPart(random, inputs, is_tensor_name), output = DrawPart(random, outputs, is_tensor_name);
  if (!input) return std::nullopt;
  Json value = output && Draw(random, 2) ? *output->value : Json("no_such_value");
  return Edit{absl::StrCat("a value before it is computed, at ", input->path), input->value, std::move(value)};
}

std::optional<Edit> TooDeep(Random& random, const std::vector<Part>& parts) {
  const auto part = DrawPart(random, parts, [](const Part& each) { return !each.path.empty(); });
  if (!part) return std::nullopt;
  Json deep = *part->value;
  for (int depth = 0; depth < 1000; ++depth) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  return Edit{absl::StrCat("deep nesting at ", part->path), part->value, std::move(deep)};
}

}  // namespace

std::vector<Damage> DamagedJson(absl::string_view text, int count, unsigned seed) {
  Json document = Json::parse(text.begin(), text.end());
  std::vector<Part> parts;
  Collect(document, "", parts);
  const Change changes[] = {OtherType, Missing, Repeated, HostileSize, UnknownOperator, Cycle, TooDeep};
  Random random(seed);
  std::vector<Damage> damages;
  while (static_cast<int>(damages.size()) < count) {
    std::optional<Edit> edit = changes[Draw(random, std::size(changes))](random, parts);
    if (!edit) continue;
    // Swapping keeps the places of all parts.
    edit->at->swap(edit->value);
    damages.push_back({std::move(edit->name), document.dump()});
    edit->at->swap(edit->value);
  }
  return damages;
}

}  // namespace lockstep::models::exported::testing
