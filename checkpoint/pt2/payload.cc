#include "lockstep/checkpoint/pt2/payload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::pt2 {
namespace {

// The schema writes a symbol as sympy does: Symbol('s77', positive=True, integer=True).
std::string SymbolOf(absl::string_view expression) {
  if (!absl::ConsumePrefix(&expression, "Symbol('")) return {};
  const size_t end = expression.find('\'');
  if (end == absl::string_view::npos || expression.find(')') != expression.size() - 1) return {};
  return std::string(expression.substr(0, end));
}

Extent ParseExtent(JsonReader& json, const Json& extent) {
  Extent parsed;
  if (JsonReader::Find(extent, "as_int")) {
    parsed.number = json.Integer(extent, "as_int");
    if (json.ok() && parsed.number < 0) json.Damaged(absl::StrCat("a size, stride or offset is ", parsed.number));
  } else {
    parsed.symbol = SymbolOf(json.Text(json.Object(extent, "as_expr"), "expr_str"));
  }
  return parsed;
}

Json NumbersOf(const std::vector<Extent>& extents) {
  Json numbers = Json::array();
  for (const Extent& extent : extents) numbers.push_back({{"as_int", extent.number}});
  return numbers;
}

Json JsonOf(const TensorMeta& meta) {
  const Json index = meta.device.index < 0 ? Json() : Json(meta.device.index);
  return {{"dtype", meta.dtype},
          {"sizes", NumbersOf(meta.sizes)},
          {"requires_grad", meta.requires_grad},
          {"device", {{"type", meta.device.type}, {"index", index}}},
          {"strides", NumbersOf(meta.strides)},
          {"storage_offset", {{"as_int", meta.storage_offset.number}}},
          {"layout", meta.layout}};
}

}  // namespace

DeviceName ParseDevice(JsonReader& json, const Json& device) {
  DeviceName parsed{json.Text(device, "type")};
  if (JsonReader::Find(device, "index")) parsed.index = json.Integer(device, "index");
  return parsed;
}

TensorMeta ParseTensorMeta(JsonReader& json, const Json& meta) {
  TensorMeta parsed;
  parsed.dtype = json.Integer(meta, "dtype");
  for (const Json& size : json.List(meta, "sizes")) parsed.sizes.push_back(ParseExtent(json, size));
  for (const Json& stride : json.List(meta, "strides")) parsed.strides.push_back(ParseExtent(json, stride));
  parsed.storage_offset = ParseExtent(json, json.Object(meta, "storage_offset"));
  parsed.requires_grad = json.Bool(meta, "requires_grad");
  parsed.device = ParseDevice(json, json.Object(meta, "device"));
  parsed.layout = json.Integer(meta, "layout");
  if (json.ok() && parsed.sizes.size() != parsed.strides.size()) {
    json.Damaged(absl::StrCat(parsed.sizes.size(), " sizes and ", parsed.strides.size(), " strides"));
  }
  return parsed;
}

absl::StatusOr<std::vector<Payload>> ParsePayloads(absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json source, ParseJson(text));
  JsonReader json;
  std::vector<Payload> payloads;
  for (const auto& [name, entry] : json.Object(source, "config").items()) {
    Payload payload{name};
    json.Within(absl::StrCat("\"", name, "\""), [&, &entry = entry] {
      payload.record = json.Text(entry, "path_name");
      payload.is_parameter = json.Bool(entry, "is_param");
      payload.pickled = json.Bool(entry, "use_pickle");
      if (const Json* meta = JsonReader::Find(entry, "tensor_meta")) payload.tensor = ParseTensorMeta(json, *meta);
    });
    payloads.push_back(std::move(payload));
  }
  LOCKSTEP_RETURN_IF_ERROR(json.status());
  return payloads;
}

std::string PayloadsText(const std::vector<Payload>& payloads) {
  Json config = Json::object();
  for (const Payload& payload : payloads) {
    config[payload.name] = {{"path_name", payload.record},
                            {"is_param", payload.is_parameter},
                            {"use_pickle", payload.pickled},
                            {"tensor_meta", payload.tensor ? JsonOf(*payload.tensor) : Json()}};
  }
  return Json{{"config", std::move(config)}}.dump();
}

}  // namespace lockstep::checkpoint::pt2
