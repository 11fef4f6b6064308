#include "lockstep/checkpoint/file/path.h"

#include <filesystem>
#include <system_error>

namespace lockstep::checkpoint::file {

std::string AbsolutePath(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

}  // namespace lockstep::checkpoint::file
