// Turns a stream that arrives in pieces into whole lines with a prefix.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_LINE_PREFIXER_H_
#define LOCKSTEP_LAUNCH_OUTPUT_LINE_PREFIXER_H_

#include <stddef.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lockstep::launch {

// `form` with $name and ${name} replaced by the values of these names, and "$$" by "$". Other names do not change.
std::string FillIn(absl::string_view form, const std::map<std::string, std::string>& values);

// A line ends with "\n", "\r\n" or "\r", as in torchrun: the states of a progress bar are lines. All three are written
// as "\n". A line of more than `longest` bytes becomes several lines.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix, size_t longest = 64 << 10)
      : prefix_(std::move(prefix)), longest_(longest) {}

  // Appends the lines that end in `text` to *out, and keeps the start of the next one.
  void Feed(absl::string_view text, std::string* out);

  // Appends the line that has not ended, if there is one.
  void Finish(std::string* out);

 private:
  void Keep(absl::string_view part, std::string* out);
  void EndLine(std::string* out);

  const std::string prefix_;
  const size_t longest_;
  std::string line_;           // the start of a line
  bool after_return_ = false;  // the last byte was "\r", so a "\n" belongs to it
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_LINE_PREFIXER_H_
