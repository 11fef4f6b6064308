#include "lockstep/examples/ranks/temporary_path.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lockstep::examples {

TemporaryPath::TemporaryPath(absl::string_view name) {
  const std::string variable = absl::StrCat(absl::AsciiStrToUpper(name), "_PATH");
  if (const char* const inherited = std::getenv(variable.c_str())) {
    path_ = inherited;
    return;
  }
  const char* const folder = std::getenv("TMPDIR");
  path_ = absl::StrCat(folder ? folder : "/tmp", "/", name, ".", getpid());
  is_owner_ = true;
  setenv(variable.c_str(), path_.c_str(), /*overwrite=*/1);
}

TemporaryPath::~TemporaryPath() {
  std::error_code ignored;
  if (is_owner_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::examples
