#include "lockstep/base/internal/usage_text.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/wrapped_text.h"

namespace lockstep::internal {
namespace {

using gflags::CommandLineFlagInfo;

constexpr size_t kIndent = 26;  // where descriptions begin

absl::string_view ValueName(absl::string_view type) {
  if (type == "bool") return "";
  if (type == "string") return "=TEXT";
  return type == "double" ? "=X" : "=N";
}

std::string Names(const CommandLineFlagInfo& info, const ProgramUsage& usage) {
  std::string names;
  for (const auto& [alias, name] : usage.aliases) {
    if (name == info.name) absl::StrAppend(&names, alias, ", ");
  }
  return absl::StrCat("  ", names, "--", info.name, ValueName(info.type));
}

// gflags prints doubles with 17 digits.
std::string Default(const CommandLineFlagInfo& info) {
  if (info.type == "double") return absl::StrCat(std::strtod(info.default_value.c_str(), nullptr));
  if (info.type == "bool" && info.default_value == "false") return "";
  return info.default_value;
}

std::string Description(const CommandLineFlagInfo& info) {
  const std::string default_value = Default(info);
  if (default_value.empty()) return info.description;
  return absl::StrCat(info.description, " [", default_value, "]");
}

std::string FlagText(const CommandLineFlagInfo& info, const ProgramUsage& usage, size_t width) {
  return Wrapped(Names(info, usage), Description(info), kIndent, width);
}

// The program's flags that are not in any group.
std::vector<CommandLineFlagInfo> Ungrouped(const ProgramUsage& usage) {
  std::set<std::string> grouped;
  for (const FlagGroup& group : usage.groups) grouped.insert(group.flags.begin(), group.flags.end());
  std::vector<CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  const auto is_other = [&](const CommandLineFlagInfo& info) {
    return info.filename != usage.source || grouped.count(info.name) > 0;
  };
  flags.erase(std::remove_if(flags.begin(), flags.end(), is_other), flags.end());
  return flags;
}

}  // namespace

std::string UsageText(absl::string_view program, const ProgramUsage& usage, size_t width) {
  std::string text = absl::StrCat("usage: ", program, " [flags]", usage.arguments.empty() ? "" : " ", usage.arguments,
                                  "\n\n", absl::StripAsciiWhitespace(usage.description), "\n");
  for (const FlagGroup& group : usage.groups) {
    absl::StrAppend(&text, "\n", group.title, ":\n");
    for (const std::string& flag : group.flags) {
      absl::StrAppend(&text, FlagText(gflags::GetCommandLineFlagInfoOrDie(flag.c_str()), usage, width));
    }
  }
  absl::StrAppend(&text, "\n", usage.groups.empty() ? "Flags" : "Other flags", ":\n");
  for (const CommandLineFlagInfo& info : Ungrouped(usage)) absl::StrAppend(&text, FlagText(info, usage, width));
  absl::StrAppend(&text, Wrapped("  -h, --help", "Print this text and exit.", kIndent, width));
  return text;
}

}  // namespace lockstep::internal
