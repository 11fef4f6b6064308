#include "lockstep/base/json_fields.h"

#include "absl/strings/str_format.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool JsonFields::Enter(const char* name, bool required) {
  const size_t index = level_.fields++;
  level_.name = name;
  if (!reads_) {
    if (index > 0) text_.push_back(',');
    if (!level_.is_row) absl::StrAppend(&text_, "\"", name, "\":");
    return true;
  }
  if (level_.is_row) {
    read_ = index < level_.read->size() ? &(*level_.read)[index] : nullptr;
  } else {
    const auto found = level_.read->find(name);
    read_ = found != level_.read->end() ? &*found : nullptr;
  }
  if (!read_ && required) Fail(absl::StrCat("field \"", name, "\" is missing"));
  return read_ != nullptr;
}

void JsonFields::Fail(absl::string_view message) {
  if (reads_) status_.Update(absl::InvalidArgumentError(message));
}

void JsonFields::FailToRead(absl::string_view expected) {
  constexpr size_t kMostShown = 64;
  const std::string found = read_->is_structured() ? read_->type_name() : read_->dump(-1, ' ', /*ensure_ascii=*/true);
  const std::string where = *level_.name == '\0' ? "" : absl::StrCat("field \"", level_.name, "\": ");
  Fail(absl::StrCat(where, "expected ", expected, ", found ", found.substr(0, kMostShown)));
}

bool JsonFields::IsBetween(int64_t min, uint64_t max) const {
  if (read_->is_number_unsigned()) return read_->get<uint64_t>() <= max;
  return read_->is_number_integer() && read_->get<int64_t>() >= min;
}

void JsonFields::Value(bool& value) {
  if (!reads_) {
    text_.append(value ? "true" : "false");
  } else if (read_->is_boolean()) {
    value = read_->get<bool>();
  } else {
    FailToRead("true or false");
  }
}

void JsonFields::Value(double& value) {
  if (!reads_) {
    absl::StrAppendFormat(&text_, "%.4g", value);
  } else if (read_->is_number()) {
    value = read_->get<double>();
  } else {
    FailToRead("a number");
  }
}

void JsonFields::Value(std::string& value) {
  if (!reads_) {
    text_.append(Quoted(options_.printable ? Printable(value) : value));
  } else if (read_->is_string()) {
    value = read_->get<std::string>();
  } else {
    FailToRead("a text");
  }
}

void JsonFields::Value(absl::Duration& value) {
  double seconds = absl::ToDoubleSeconds(value);
  if (reads_) {
    Value(seconds);
    value = absl::Seconds(seconds);
  } else {
    absl::StrAppendFormat(&text_, "%.3f", seconds);
  }
}

void JsonFields::Nanoseconds(const char* name, absl::Duration& value) {
  int64_t nanoseconds = absl::ToInt64Nanoseconds(value);
  Field(name, nanoseconds);
  if (reads_) value = absl::Nanoseconds(nanoseconds);
}

void JsonFields::Age(const char* name, int64_t& time_ns) {
  int64_t age_ns = options_.now_ns - time_ns;
  Field(name, age_ns);
  if (reads_) time_ns = options_.now_ns - age_ns;
}

}  // namespace lockstep
