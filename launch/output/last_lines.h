// The end of a log, for the message of a failure.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_LAST_LINES_H_
#define LOCKSTEP_LAUNCH_OUTPUT_LAST_LINES_H_

#include <stddef.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::launch {

inline constexpr size_t kMostLastLines = 10;
inline constexpr size_t kMostLastBytes = 2048;

// The last lines of `text`: at most 10, and at most 2048 bytes after control characters have been escaped. If the last
// line alone is longer, its end follows "...".
std::vector<std::string> LastLines(absl::string_view text);

// The last lines of the file. Empty if the file is empty or cannot be read.
std::vector<std::string> LastLinesOfFile(const std::string& path);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_LAST_LINES_H_
