#include "lockstep/examples/program/flag_table.h"

#include <gflags/gflags.h>

#include <deque>
#include <string>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {
namespace {

// gflags keeps these pointers until the process ends.
const char* Kept(const std::string& text) {
  static auto* const texts = new std::deque<std::string>;
  return texts->emplace_back(text).c_str();
}

}  // namespace

void FlagTable::Group(absl::string_view title) { groups_.push_back({std::string(title), {}}); }

FlagTable::Row& FlagTable::AddRow(absl::string_view name, Variable variable, absl::string_view help) {
  rows_.push_back({std::string(name), std::string(help), variable, std::nullopt, "", "", nullptr});
  if (!groups_.empty()) groups_.back().flags.push_back(Identifier(rows_.back().name));
  return rows_.back();
}

void FlagTable::Add(absl::string_view name, std::optional<int64_t>* value, absl::string_view help) {
  AddText(name, *value ? absl::StrCat(**value) : "", help, "a whole number", [value](const std::string& given) {
    int64_t number = 0;
    if (!given.empty() && !absl::SimpleAtoi(given, &number)) return false;
    *value = given.empty() ? std::nullopt : std::optional<int64_t>(number);
    return true;
  });
}

void FlagTable::AddText(absl::string_view name, absl::string_view text, absl::string_view help,
                        absl::string_view expected, std::function<bool(const std::string&)> take) {
  Row& row = AddRow(name, static_cast<std::string*>(nullptr), help);
  row.text = std::string(text);
  row.expected = std::string(expected);
  row.take = std::move(take);
}

std::string FlagTable::Identifier(const std::string& name) { return absl::StrReplaceAll(name, {{"-", "_"}}); }

void FlagTable::Register(ProgramUsage& usage) {
  usage.source = __FILE__;
  usage.groups.insert(usage.groups.end(), groups_.begin(), groups_.end());
  for (Row& row : rows_) {
    if (row.take) row.variable = &row.text;
    std::visit(
        [&](auto* variable) {
          auto* const initial = new std::decay_t<decltype(*variable)>(*variable);
          gflags::FlagRegisterer(Kept(Identifier(row.name)), Kept(row.help), __FILE__, variable, initial);
        },
        row.variable);
  }
}

absl::Status FlagTable::Check() {
  std::vector<FlagRange> ranges;
  for (Row& row : rows_) {
    if (row.take && !row.take(row.text)) return FlagError(row.name, row.text, row.expected);
    if (!row.range) continue;
    double value = 0;
    if (const auto* const number = std::get_if<int32_t*>(&row.variable)) value = **number;
    if (const auto* const number = std::get_if<int64_t*>(&row.variable)) value = static_cast<double>(**number);
    if (const auto* const number = std::get_if<double*>(&row.variable)) value = **number;
    ranges.push_back({row.name, value, row.range->least, row.range->most});
  }
  return CheckRanges(ranges);
}

}  // namespace lockstep::examples
