// The text of --help.

#ifndef LOCKSTEP_BASE_INTERNAL_USAGE_TEXT_H_
#define LOCKSTEP_BASE_INTERNAL_USAGE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/command_line.h"

namespace lockstep::internal {

// The usage, the description and the program's flags by group, each with its aliases, its kind of value, its
// description and its default. Descriptions of flags are wrapped at `width`.
std::string UsageText(absl::string_view program, const ProgramUsage& usage, size_t width);

}  // namespace lockstep::internal

#endif  // LOCKSTEP_BASE_INTERNAL_USAGE_TEXT_H_
