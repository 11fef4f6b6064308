// A folder of a test's own.

#ifndef LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_
#define LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_

#include <string>
#include <vector>

namespace lockstep::checkpoint::testing {

// Removed, with what is in it, at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  // What is in the folder, or one below it; hidden files too, in order.
  std::vector<std::string> Names(const std::string& below = "") const;

  std::string Read(const std::string& name) const;
  void Write(const std::string& name, const std::string& contents) const;

 private:
  std::string path_;
};

}  // namespace lockstep::checkpoint::testing

#endif  // LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_
