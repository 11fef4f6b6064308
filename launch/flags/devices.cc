#include "lockstep/tools/launch/internal/devices.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep::launch::internal {
namespace {

bool IsDevice(absl::string_view name) {
  return absl::ConsumePrefix(&name, "nvidia") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

int DevicesIn(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  int devices = 0;
  while (const dirent* entry = entries ? readdir(entries.get()) : nullptr) devices += IsDevice(entry->d_name);
  return devices;
}

}  // namespace

int NvidiaDevices(const std::string& folder, const char* visible) {
  int devices = DevicesIn(folder);
  if (devices == 0 || !visible) return devices;
  devices = 0;
  for (const absl::string_view name : absl::StrSplit(visible, ',', absl::SkipWhitespace())) {
    if (absl::StripAsciiWhitespace(name) == "-1") break;
    ++devices;
  }
  return devices;
}

}  // namespace lockstep::launch::internal
