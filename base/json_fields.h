// Writes a struct as JSON and reads it again, by one list of its fields.
//
//   struct Host {
//     std::string name;
//     int ranks = 1;
//     std::vector<std::string> addresses;
//   };
//
//   void Fields(JsonFields& json, Host& host) {
//     json.Required("name", host.name);
//     json.Field("ranks", host.ranks);
//     json.Optional("addresses", host.addresses);
//   }
//
//   const std::string text = WriteJson(host);  // {"name":"a","ranks":4}
//   Host again;
//   LOCKSTEP_RETURN_IF_ERROR(ReadJson(text, &again));
//
// Fields() is in the namespace of the struct, and not in an unnamed one. It may use values that it has named before: a
// switch over a message's kind names the fields of that kind. It does not change a struct that is written.
//
// A value of a field is one of these:
//
//   bool, an integer, std::string   in JSON the same. Bytes that are not UTF-8 are written as U+FFFD
//   double                          four digits
//   absl::Duration                  seconds with three decimals; Nanoseconds() is exact
//   an enumeration                  by Enum()
//   a struct that has Fields()      an object
//   std::vector of these            a list
//   std::optional of these          the value, or no field

#ifndef LOCKSTEP_BASE_JSON_FIELDS_H_
#define LOCKSTEP_BASE_JSON_FIELDS_H_

#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace lockstep {

struct JsonOptions {
  bool printable = false;  // texts are written as Printable() has them, and read as they are
  int64_t now_ns = 0;      // for Age(): the time of the writer or of the reader
};

// `value` as one line of JSON without a line break.
template <typename T>
std::string WriteJson(const T& value, const JsonOptions& options = {});

// Sets the fields of `value` that `text` has. InvalidArgument, which names the field, for a value of another type, for
// a number that does not fit, and for a required field that is missing; and for a text that is not JSON. Then `value`
// may have some of the fields.
template <typename T>
absl::Status ReadJson(absl::string_view text, T* value, const JsonOptions& options = {});

// One thread uses it, and one call of WriteJson() or ReadJson() makes it.
class JsonFields {
 public:
  // Returns whether fields are read. If not, they are written.
  bool reads() const { return reads_; }

  // The field `name`. If the text that is read lacks it, `value` keeps what it has. Fields of unknown names are
  // ignored.
  template <typename T>
  void Field(const char* name, T& value) {
    if (Enter(name, /*required=*/false)) Value(value);
    Leave();
  }
  template <typename T>
  void Field(const char* name, std::optional<T>& value) {
    if (!reads_ && !value) return;
    if (Enter(name, /*required=*/false)) Value(reads_ ? value.emplace() : *value);
    Leave();
  }

  // Does what Field() does, but ReadJson() fails without the field.
  template <typename T>
  void Required(const char* name, T& value) {
    if (Enter(name, /*required=*/true)) Value(value);
    Leave();
  }

  // Does what Field() does, but does not write a value that is T(): 0, false, "", an empty list.
  template <typename T>
  void Optional(const char* name, T& value) {
    if (reads_ || level_.is_row || value != T()) Field(name, value);
  }

  // A list whose elements are structs, for long lists: each is written as the list of its fields' values without their
  // names. Such a struct has no std::optional.
  template <typename T>
  void Rows(const char* name, std::vector<T>& rows) {
    if (Enter(name, /*required=*/false)) List(rows, [this](T& row) { Struct(row, '[', ']'); });
    Leave();
  }

  // An enumeration from 0 to `last`, as a number.
  template <typename T>
  void Enum(const char* name, T& value, T last) {
    int number = static_cast<int>(value);
    Field(name, number);
    if (number < 0 || number > static_cast<int>(last)) return Fail(absl::StrCat("unknown ", name, " ", number));
    if (reads_) value = static_cast<T>(number);
  }

  // An enumeration, as one of the names. The first name is for 0.
  template <typename T, size_t kCount>
  void Enum(const char* name, T& value, const absl::string_view (&names)[kCount]) {
    std::string text(names[static_cast<size_t>(value)]);
    Field(name, text);
    const auto found = std::find(std::begin(names), std::end(names), text);
    if (found == std::end(names)) return Fail(absl::StrCat("unknown ", name, " ", text));
    if (reads_) value = static_cast<T>(found - std::begin(names));
  }

  void Nanoseconds(const char* name, absl::Duration& value);

  // A time on the clock of JsonOptions::now_ns. Since the reader may have another clock, it is written as its age.
  void Age(const char* name, int64_t& time_ns);

  // Makes ReadJson() fail with this message, unless it fails already. Has no effect on a writer.
  void Fail(absl::string_view message);

 private:
  template <typename T>
  friend std::string WriteJson(const T& value, const JsonOptions& options);
  template <typename T>
  friend absl::Status ReadJson(absl::string_view text, T* value, const JsonOptions& options);

  using Json = nlohmann::json;

  // An object, or a row, whose fields are being named.
  struct Level {
    const Json* read = nullptr;
    bool is_row = false;
    size_t fields = 0;      // that have been named
    const char* name = "";  // of the last one
  };

  JsonFields(const JsonOptions& options, const Json* read) : options_(options), reads_(read != nullptr), read_(read) {}

  // Moves to the value of a field, if there is one, and back.
  bool Enter(const char* name, bool required);
  void Leave() { read_ = level_.read; }

  void Value(bool& value);
  void Value(double& value);
  void Value(std::string& value);
  void Value(absl::Duration& value);

  template <typename T>
  void Value(T& value) {
    if constexpr (std::is_integral_v<T>) {
      Integer(value);
    } else {
      Struct(value, '{', '}');
    }
  }

  template <typename T>
  void Value(std::vector<T>& values) {
    List(values, [this](T& value) { Value(value); });
  }

  template <typename T>
  void Integer(T& value) {
    constexpr T kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
    if (!reads_) {
      absl::StrAppend(&text_, value);
    } else if (IsBetween(static_cast<int64_t>(kMin), static_cast<uint64_t>(kMax))) {
      value = read_->get<T>();
    } else {
      FailToRead(absl::StrCat("a whole number from ", kMin, " to ", kMax));
    }
  }

  template <typename T>
  void Struct(T& value, char opening, char closing) {
    const bool is_row = opening == '[';
    if (reads_ && (is_row ? !read_->is_array() : !read_->is_object()))
      return FailToRead(is_row ? "a list" : "an object");
    const Level outer = std::exchange(level_, {read_, is_row, 0, level_.name});
    if (!reads_) text_.push_back(opening);
    Fields(*this, value);
    if (!reads_) text_.push_back(closing);
    level_ = outer;
  }

  template <typename T, typename F>
  void List(std::vector<T>& values, const F& element) {
    if (reads_) {
      ReadList(values, element);
    } else {
      WriteList(values, element);
    }
  }

  template <typename T, typename F>
  void ReadList(std::vector<T>& values, const F& element) {
    if (!read_->is_array()) return FailToRead("a list");
    values.clear();
    for (const Json& json : *std::exchange(read_, nullptr)) {
      read_ = &json;
      element(values.emplace_back());
    }
  }

  template <typename T, typename F>
  void WriteList(std::vector<T>& values, const F& element) {
    text_.push_back('[');
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_.push_back(',');
      element(values[i]);
    }
    text_.push_back(']');
  }

  bool IsBetween(int64_t min, uint64_t max) const;
  void FailToRead(absl::string_view expected);

  const JsonOptions options_;
  const bool reads_;
  const Json* read_;  // the value that is read
  std::string text_;  // what is written
  Level level_;
  absl::Status status_;
};

template <typename T>
std::string WriteJson(const T& value, const JsonOptions& options) {
  JsonFields json(options, nullptr);
  json.Value(const_cast<T&>(value));
  return std::move(json.text_);
}

template <typename T>
absl::Status ReadJson(absl::string_view text, T* value, const JsonOptions& options) {
  const nlohmann::json parsed = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("not JSON");
  JsonFields json(options, &parsed);
  json.Value(*value);
  return json.status_;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_JSON_FIELDS_H_
