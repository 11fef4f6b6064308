// A file in a separate directory, for tests of the files that replacing it leaves behind.

#ifndef LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_
#define LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint::testing {

class SavedFile {
 public:
  const std::string& directory() const { return folder_.path(); }
  std::string path() const { return directory() + "/model.pt"; }
  std::string Contents() const { return folder_.Read("model.pt"); }

  void Write(const std::string& contents) const {
    std::filesystem::create_directories(directory());
    folder_.Write("model.pt", contents);
  }

  // All names in the directory, including hidden files.
  std::vector<std::string> Names() const {
    return std::filesystem::exists(directory()) ? folder_.Names() : std::vector<std::string>();
  }

 private:
  const Folder folder_;
};

}  // namespace lockstep::checkpoint::testing

#endif  // LOCKSTEP_CHECKPOINT_FAILURES_SAVED_FILE_H_
