// Maps the fields of a C++ struct to the keys of a Python dict, described once for both directions.
//
//   void Describe(Fields& fields, SGDOptions& options) {
//     fields.Double("lr", options.lr());
//     fields.Bool("nesterov", options.nesterov());
//   }
//   Fields writer;          Describe(writer, options);  // writer.dict() is {"lr": 0.1, "nesterov": False}
//   Fields reader(group);   Describe(reader, options);  // sets the options, unless reader.status() says why not
//
// Keys are written in the order of the calls. When reading, fields are set up to the first error, so read into a copy.
// Other keys of the dict are ignored.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_FIELDS_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_FIELDS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::optim {

class Fields {
 public:
  // Writes.
  Fields() = default;
  // Reads.
  explicit Fields(Value from) : from_(std::move(from)) {}

  bool reading() const { return from_.has_value(); }
  // The written dict.
  const Value& dict() const { return dict_; }
  // The first error of reading: InvalidArgument, naming the key; or Unimplemented.
  const absl::Status& status() const { return status_; }

  // A tensor of one element is read as a number too: Python's lr may be one.
  void Double(const char* key, double& field);
  void Int(const char* key, int64_t& field);
  void Bool(const char* key, bool& field);
  void Doubles(const char* key, std::vector<double>& field);
  void Ints(const char* key, std::vector<int64_t>& field);
  // Another form: `written`, and the way to read it, whose errors get the key before them.
  void Field(const char* key, Value written, absl::FunctionRef<absl::Status(const Value&)> read);

  // A key that Python keeps and C++ does not use: ignored when read.
  void WriteOnly(const char* key, Value written);
  // A feature that C++ lacks: written as False. Reading True is Unimplemented, and the error says that `owner` does not
  // have it.
  void AlwaysFalse(const char* key, absl::string_view owner);

  // Reading only: whether `key` is there and not None.
  bool Has(const char* key) const;
  // Reading only: an error unless `holds`.
  void Check(bool holds, absl::string_view error);

 private:
  template <typename T>
  void Exchange(const char* key, T& field, absl::StatusOr<T> (*get)(const Value&, const KeyPath&));
  template <typename T>
  void ExchangeList(const char* key, std::vector<T>& field, absl::StatusOr<T> (*get)(const Value&, const KeyPath&));

  std::optional<Value> from_;
  Value dict_ = Value::Dict();
  absl::Status status_;
};

// A float, an int, or a tensor of one number.
absl::StatusOr<double> GetNumber(const Value& value, const KeyPath& path);

// Sets both to a sequence of two numbers.
absl::Status TwoNumbers(const Value& found, double& first, double& second);

// Returns `status`, with InvalidArgument instead of NotFound: in a dict that is loaded as a whole, a missing key is a
// mistake.
absl::Status InvalidIfMissing(const absl::Status& status);

}  // namespace lockstep::checkpoint::optim

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_FIELDS_H_
