// Reads fields of a JSON object, and keeps the first error. After an error, each function returns an empty value.
//
//   JsonReader json;
//   const std::string name = json.Text(object, "name");
//   json.Within("node 3", [&] { ... });    // names the place in errors
//   LOCKSTEP_RETURN_IF_ERROR(json.status());

#ifndef LOCKSTEP_CHECKPOINT_PT2_JSON_READER_H_
#define LOCKSTEP_CHECKPOINT_PT2_JSON_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace lockstep::checkpoint::pt2 {

// Keeps the order of an object's keys, which is Python's order of parameters.
using Json = nlohmann::ordered_json;

class JsonReader {
 public:
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Keeps `error`, with the places of Within() before it, unless there is one already.
  void Fail(absl::Status error);
  void Damaged(absl::string_view message) { Fail(absl::DataLossError(message)); }

  // Runs `f`, whose errors begin with `place`.
  void Within(absl::string_view place, absl::FunctionRef<void()> f);

  // The field `name` of `object`. Fails if it is missing or not of this type. The references live as long as `object`.
  const Json& Object(const Json& object, const char* name);
  const Json& List(const Json& object, const char* name);
  std::string Text(const Json& object, const char* name);
  int64_t Integer(const Json& object, const char* name);
  bool Bool(const Json& object, const char* name);

  // nullptr if it is missing or null.
  static const Json* Find(const Json& object, const char* name);

  int64_t AsInteger(const Json& value, absl::string_view what);
  // Accepts numbers, and "Infinity", "-Infinity" and "NaN" as Python's serializer writes them.
  double AsDouble(const Json& value, absl::string_view what);
  std::string AsText(const Json& value, absl::string_view what);
  bool AsBool(const Json& value, absl::string_view what);

 private:
  const Json& Field(const Json& object, const char* name, bool right, const char* type);
  void WrongType(absl::string_view what, const char* expected, const Json& found);

  absl::Status status_;
};

// DataLoss: `text` is not JSON, or nested more than 500 deep.
absl::StatusOr<Json> ParseJson(absl::string_view text);

}  // namespace lockstep::checkpoint::pt2

#endif  // LOCKSTEP_CHECKPOINT_PT2_JSON_READER_H_
