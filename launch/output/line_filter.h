// Keeps the lines of a stream that contain one of several texts.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_LINE_FILTER_H_
#define LOCKSTEP_LAUNCH_OUTPUT_LINE_FILTER_H_

#include <stddef.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/launch/output/line_prefixer.h"

namespace lockstep::launch {

// Lines are a LinePrefixer's, and begin with the prefix.
class LineFilter {
 public:
  LineFilter(const std::string& prefix, std::vector<std::string> texts);

  // Appends the lines that end in `text` and contain one of the texts, the prefix aside, to *out.
  void Feed(absl::string_view text, std::string* out);

  // Appends the line that has not ended, if there is one and it contains one of the texts.
  void Finish(std::string* out);

 private:
  void TakeLines(std::string* out);

  const size_t prefix_bytes_;
  const std::vector<std::string> texts_;
  LinePrefixer prefixer_;
  std::string lines_;  // whole lines that have not been looked at
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_LINE_FILTER_H_
