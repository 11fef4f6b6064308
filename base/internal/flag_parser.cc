#include "lockstep/base/internal/flag_parser.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::internal {
namespace {

using gflags::CommandLineFlagInfo;

constexpr char kSeeHelp[] = "--help lists the flags";

// An argument that begins with a dash.
struct Flag {
  std::string given;                 // its name as it was typed: "--batch-size"
  std::string name;                  // "batch_size"
  std::optional<std::string> value;  // what follows in the same argument
};

std::string Name(absl::string_view given) {
  return absl::StrReplaceAll(absl::StripPrefix(absl::StripPrefix(given, "-"), "-"), {{"-", "_"}});
}

// The flags of gflags itself, such as --flagfile and --helpfull, end the program or read files, so they are not
// accepted.
bool IsOfGflags(const CommandLineFlagInfo& info) {
  const size_t slash = info.filename.rfind('/');
  return absl::StartsWith(info.filename.substr(slash == info.filename.npos ? 0 : slash + 1), "gflags");
}

bool Find(const std::string& name, CommandLineFlagInfo& info) {
  return gflags::GetCommandLineFlagInfo(name.c_str(), &info) && !IsOfGflags(info);
}

// Returns whether `argument` is a short alias with its value behind it, as in "-b256".
bool IsShortWithValue(const std::string& argument, const ProgramUsage& usage) {
  const auto alias = usage.aliases.find(argument.substr(0, 2));
  CommandLineFlagInfo info;
  return alias != usage.aliases.end() && argument[1] != '-' && Find(alias->second, info) && info.type != "bool";
}

Flag Split(const std::string& argument, const ProgramUsage& usage) {
  Flag flag;
  const size_t equals = argument.find('=');
  flag.given = argument.substr(0, equals);
  if (equals != argument.npos) flag.value = argument.substr(equals + 1);
  const auto alias = usage.aliases.find(flag.given);
  flag.name = alias == usage.aliases.end() ? Name(flag.given) : alias->second;
  CommandLineFlagInfo info;
  if (Find(flag.name, info) || !IsShortWithValue(argument, usage)) return flag;
  const std::string given = argument.substr(0, 2);
  return {given, usage.aliases.at(given), argument.substr(2)};
}

bool NeedsNoValue(const CommandLineFlagInfo& info, const ProgramUsage& usage) {
  return info.type == "bool" || usage.switches.count(info.name) > 0;
}

// "--noresume" is "--resume=false".
bool FindNegated(const Flag& flag, const ProgramUsage& usage, CommandLineFlagInfo& info) {
  return !flag.value && absl::StartsWith(flag.name, "no") && Find(flag.name.substr(2), info) &&
         NeedsNoValue(info, usage);
}

// The flags that --help lists.
std::vector<std::string> Listed(const ProgramUsage& usage) {
  std::vector<CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::vector<std::string> listed = {"help"};
  for (const CommandLineFlagInfo& info : all) {
    if (info.filename == usage.source) listed.push_back(info.name);
  }
  for (const FlagGroup& group : usage.groups) listed.insert(listed.end(), group.flags.begin(), group.flags.end());
  return listed;
}

// A text before kSeeHelp, or "".
std::string Hint(const std::string& name, const ProgramUsage& usage) {
  for (const auto& [program, flags] : usage.other_programs) {
    const std::string negated(absl::StripPrefix(name, "no"));
    if (flags.count(name) + flags.count(negated) > 0) return absl::StrCat(program, " has it; ");
  }
  const std::optional<std::string> nearest = NearestName(name, Listed(usage));
  return nearest ? absl::StrCat("did you mean --", *nearest, "? ") : "";
}

absl::Status Unknown(const Flag& flag, const ProgramUsage& usage) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag ", Printable(flag.given), "; ", Hint(flag.name, usage), kSeeHelp));
}

absl::string_view Expected(absl::string_view type) {
  if (type == "bool") return "true or false";
  if (type == "double") return "a number";
  if (type == "int32") return "a whole number of at most 32 bits";
  if (type == "int64") return "a whole number of at most 64 bits";
  if (type == "uint32") return "a whole number of at most 32 bits, 0 or more";
  if (type == "uint64") return "a whole number of at most 64 bits, 0 or more";
  return "another value";
}

absl::Status Set(const Flag& flag, const CommandLineFlagInfo& info, const std::string& value) {
  if (!gflags::SetCommandLineOption(info.name.c_str(), value.c_str()).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag.given, "=", Printable(value), ": expected ", Expected(info.type)));
}

// Reads flags and arguments one after the other.
class Parser {
 public:
  Parser(const std::vector<std::string>& arguments, const ProgramUsage& usage) : arguments_(arguments), usage_(usage) {}

  absl::StatusOr<ParsedArguments> Parse() {
    while (next_ < arguments_.size() && !parsed_.help) {
      const std::string& argument = arguments_[next_++];
      if (argument == "--") break;
      const bool is_flag = argument.size() > 1 && argument[0] == '-';
      LOCKSTEP_RETURN_IF_ERROR(is_flag ? TakeFlag(Split(argument, usage_)) : TakeArgument(argument));
    }
    while (next_ < arguments_.size() && !parsed_.help) LOCKSTEP_RETURN_IF_ERROR(TakeArgument(arguments_[next_++]));
    return std::move(parsed_);
  }

 private:
  absl::Status TakeArgument(const std::string& argument) {
    parsed_.positional.push_back(argument);
    if (parsed_.positional.size() <= usage_.max_arguments) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", Printable(argument), "\"; ", kSeeHelp));
  }

  absl::Status TakeFlag(const Flag& flag) {
    parsed_.help = flag.name == "help" || flag.name == "h";
    if (parsed_.help) return absl::OkStatus();
    CommandLineFlagInfo info;
    if (!Find(flag.name, info)) {
      return FindNegated(flag, usage_, info) ? Set(flag, info, "false") : Unknown(flag, usage_);
    }
    if (flag.value) return Set(flag, info, *flag.value);
    if (NeedsNoValue(info, usage_)) return Set(flag, info, "true");
    if (next_ == arguments_.size() || absl::StartsWith(arguments_[next_], "--")) {
      return absl::InvalidArgumentError(absl::StrCat(flag.given, " needs a value; ", kSeeHelp));
    }
    return Set(flag, info, arguments_[next_++]);
  }

  const std::vector<std::string>& arguments_;
  const ProgramUsage& usage_;
  ParsedArguments parsed_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<ParsedArguments> ParseArguments(const std::vector<std::string>& arguments, const ProgramUsage& usage) {
  return Parser(arguments, usage).Parse();
}

}  // namespace lockstep::internal
