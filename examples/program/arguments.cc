#include "lockstep/examples/program/arguments.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lockstep::examples {
namespace {

// "-b256": a short flag that its value follows at once.
bool IsShortWithValue(const std::string& argument, const std::map<std::string, std::string>& aliases) {
  return argument.size() > 2 && argument[1] != '-' && aliases.count(argument.substr(0, 2)) > 0;
}

std::string Rewritten(const std::string& argument, const std::map<std::string, std::string>& aliases) {
  const size_t equals = std::min(argument.find('='), argument.size());
  const std::string name = argument.substr(0, equals), value = argument.substr(equals);
  if (const auto alias = aliases.find(name); alias != aliases.end()) return absl::StrCat("--", alias->second, value);
  if (absl::StartsWith(name, "--")) return absl::StrCat("--", absl::StrReplaceAll(name.substr(2), {{"-", "_"}}), value);
  if (IsShortWithValue(argument, aliases)) {
    return absl::StrCat("--", aliases.at(argument.substr(0, 2)), "=", argument.substr(2));
  }
  return argument;
}

}  // namespace

std::vector<std::string> WithGflagsNames(const std::vector<std::string>& arguments,
                                         const std::map<std::string, std::string>& aliases) {
  std::vector<std::string> rewritten;
  bool flags = false;  // the program's name is none
  for (const std::string& argument : arguments) {
    if (argument == "--") flags = false;
    rewritten.push_back(flags ? Rewritten(argument, aliases) : argument);
    if (rewritten.size() == 1) flags = true;
  }
  return rewritten;
}

}  // namespace lockstep::examples
