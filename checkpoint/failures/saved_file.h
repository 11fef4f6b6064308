// A file in a directory of its own, for tests of what replacing it leaves behind.

#ifndef LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_
#define LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::testing {

class SavedFile {
 public:
  SavedFile() {
    std::string pattern = ::testing::TempDir() + "/saved_XXXXXX";
    directory_ = mkdtemp(&pattern[0]);
  }
  ~SavedFile() { std::filesystem::remove_all(directory_); }
  SavedFile(const SavedFile&) = delete;
  SavedFile& operator=(const SavedFile&) = delete;

  const std::string& directory() const { return directory_; }
  std::string path() const { return directory_ + "/model.pt"; }

  std::string Contents() const {
    std::ostringstream contents;
    contents << std::ifstream(path(), std::ios::binary).rdbuf();
    return contents.str();
  }

  void Write(const std::string& contents) const {
    std::filesystem::create_directories(directory_);
    std::ofstream(path(), std::ios::binary) << contents;
  }

  // Everything in the directory, hidden files too.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(directory_)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::string directory_;
};

}  // namespace lockstep::checkpoint::testing

#endif  // LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_
