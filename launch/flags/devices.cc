#include "lockstep/launch/flags/devices.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/folder.h"

namespace lockstep::launch {
namespace {

bool IsDevice(absl::string_view name) {
  return absl::ConsumePrefix(&name, "nvidia") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

}  // namespace

int NvidiaDevices(const std::string& folder, const char* visible) {
  const std::vector<std::string> names = NamesIn(folder);
  int devices = static_cast<int>(std::count_if(names.begin(), names.end(), IsDevice));
  if (devices == 0 || !visible) return devices;
  devices = 0;
  for (const absl::string_view name : absl::StrSplit(visible, ',', absl::SkipWhitespace())) {
    if (absl::StripAsciiWhitespace(name) == "-1") break;
    ++devices;
  }
  return devices;
}

}  // namespace lockstep::launch
