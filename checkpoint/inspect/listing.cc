#include "lockstep/checkpoint/inspect/listing.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/inspect/leaves.h"
#include "nlohmann/json.hpp"

namespace lockstep::checkpoint::inspect {
namespace {

using Json = nlohmann::ordered_json;

std::string DeviceOf(const OpenedFile& file, const at::Tensor& tensor) {
  const auto found = file.saved_devices.find(tensor.storage().unsafeGetStorageImpl());
  return found == file.saved_devices.end() ? tensor.device().str() : found->second;
}

std::string TotalsOf(const std::vector<Leaf>& leaves) {
  size_t tensors = 0, bytes = 0, stored = 0;
  absl::flat_hash_set<const c10::StorageImpl*> storages;
  for (const Leaf& leaf : leaves) {
    if (!leaf.value.is_tensor()) continue;
    const c10::Storage& storage = leaf.value.tensor().storage();
    ++tensors;
    bytes += leaf.value.tensor().nbytes();
    if (storages.insert(storage.unsafeGetStorageImpl()).second) stored += storage.nbytes();
  }
  return absl::StrCat(tensors, " tensors with ", bytes, " bytes, in ", storages.size(), " storages of ", stored,
                      " bytes; ", leaves.size() - tensors, " other values");
}

// Name, dtype, shape, bytes and device of a tensor; name and text of another value.
using Row = std::array<std::string, 5>;

Row RowOf(const OpenedFile& file, const Leaf& leaf) {
  if (!leaf.value.is_tensor()) return {leaf.name, Short(leaf.value)};
  const at::Tensor& tensor = leaf.value.tensor();
  return {leaf.name, DtypeName(tensor), absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"),
          absl::StrCat(tensor.nbytes()), DeviceOf(file, tensor)};
}

// The width of a column, from its tensors. The text of other values may be wider.
int Width(const std::vector<Row>& rows, size_t column) {
  size_t width = 0;
  for (const Row& row : rows) {
    if (column == 0 || !row[4].empty()) width = std::max(width, row[column].size());
  }
  return static_cast<int>(width);
}

Json ToJson(const OpenedFile& file, const Leaf& leaf) {
  if (!leaf.value.is_tensor()) return {{"name", leaf.name}, {"value", Short(leaf.value)}};
  const at::Tensor& tensor = leaf.value.tensor();
  return {{"name", leaf.name},
          {"dtype", DtypeName(tensor)},
          {"shape", tensor.sizes().vec()},
          {"bytes", tensor.nbytes()},
          {"device", DeviceOf(file, tensor)}};
}

}  // namespace

absl::StatusOr<std::string> Totals(const OpenedFile& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Leaf> leaves, Leaves(file.value));
  return TotalsOf(leaves);
}

absl::StatusOr<std::string> ListText(const OpenedFile& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Leaf> leaves, Leaves(file.value));
  std::vector<Row> rows;
  for (const Leaf& leaf : leaves) rows.push_back(RowOf(file, leaf));
  const int name = Width(rows, 0), dtype = Width(rows, 1), shape = Width(rows, 2), bytes = Width(rows, 3);
  std::string text;
  for (const Row& row : rows) {
    if (row[4].empty()) {
      absl::StrAppendFormat(&text, "%-*s  %s\n", name, row[0], row[1]);
    } else {
      absl::StrAppendFormat(&text, "%-*s  %-*s  %-*s  %*s  %s\n", name, row[0], dtype, row[1], shape, row[2], bytes,
                            row[3], row[4]);
    }
  }
  for (const auto& [key, value] : file.metadata) {
    absl::StrAppend(&text, "metadata ", absl::Utf8SafeCEscape(key), " = ", absl::Utf8SafeCEscape(value), "\n");
  }
  return absl::StrCat(text, TotalsOf(leaves), "\n");
}

absl::StatusOr<std::string> ListJson(const OpenedFile& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Leaf> leaves, Leaves(file.value));
  Json json = {{"tensors", Json::array()}, {"values", Json::array()}, {"metadata", Json::object()}};
  for (const Leaf& leaf : leaves) json[leaf.value.is_tensor() ? "tensors" : "values"].push_back(ToJson(file, leaf));
  for (const auto& [key, value] : file.metadata) json["metadata"][key] = value;
  // Python's text may contain surrogates, which UTF-8 excludes.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::checkpoint::inspect
