#include "lockstep/checkpoint/pt2/json_reader.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::pt2 {
namespace {

constexpr int kMostNested = 500;

const Json& Empty() {
  static const Json* empty = new Json();
  return *empty;
}

// True if brackets are nested deeper than kMostNested. Parsers and destructors of JSON recurse.
bool TooDeep(absl::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostNested) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

void JsonReader::Fail(absl::Status error) { status_.Update(error); }

void JsonReader::Within(absl::string_view place, absl::FunctionRef<void()> f) {
  if (!ok()) return;
  f();
  if (!ok()) status_ = Annotate(status_, place);
}

void JsonReader::WrongType(absl::string_view what, const char* expected, const Json& found) {
  Damaged(absl::StrCat(what, " is ", found.type_name(), ", expected ", expected));
}

const Json& JsonReader::Field(const Json& object, const char* name, bool right, const char* type) {
  if (!ok()) return Empty();
  const Json* found = Find(object, name);
  if (!found) {
    Damaged(absl::StrCat("field \"", name, "\" is missing"));
  } else if (!right) {
    WrongType(absl::StrCat("field \"", name, "\""), type, *found);
  } else {
    return *found;
  }
  return Empty();
}

const Json* JsonReader::Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& JsonReader::Object(const Json& object, const char* name) {
  const Json* found = Find(object, name);
  return Field(object, name, found && found->is_object(), "an object");
}

const Json& JsonReader::List(const Json& object, const char* name) {
  const Json* found = Find(object, name);
  return Field(object, name, found && found->is_array(), "a list");
}

std::string JsonReader::Text(const Json& object, const char* name) {
  const Json* found = Find(object, name);
  return AsText(Field(object, name, found != nullptr, ""), name);
}

int64_t JsonReader::Integer(const Json& object, const char* name) {
  const Json* found = Find(object, name);
  return AsInteger(Field(object, name, found != nullptr, ""), name);
}

bool JsonReader::Bool(const Json& object, const char* name) {
  const Json* found = Find(object, name);
  return AsBool(Field(object, name, found != nullptr, ""), name);
}

int64_t JsonReader::AsInteger(const Json& value, absl::string_view what) {
  if (!ok()) return 0;
  if (value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max())) {
    return value.get<int64_t>();
  }
  WrongType(what, "an integer of 64 bits", value);
  return 0;
}

double JsonReader::AsDouble(const Json& value, absl::string_view what) {
  if (!ok()) return 0;
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  WrongType(what, "a number", value);
  return 0;
}

std::string JsonReader::AsText(const Json& value, absl::string_view what) {
  if (!ok()) return {};
  if (value.is_string()) return value.get<std::string>();
  WrongType(what, "a text", value);
  return {};
}

bool JsonReader::AsBool(const Json& value, absl::string_view what) {
  if (!ok()) return false;
  if (value.is_boolean()) return value.get<bool>();
  WrongType(what, "true or false", value);
  return false;
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (TooDeep(text)) return absl::DataLossError(absl::StrCat("JSON nested more than ", kMostNested, " deep"));
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError("not valid JSON");
  return json;
}

}  // namespace lockstep::checkpoint::pt2
