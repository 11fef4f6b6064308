// A temporary folder for one test.

#ifndef LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_
#define LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_

#include <string>
#include <vector>

namespace lockstep::checkpoint::testing {

// The destructor removes the folder and its contents.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  // The sorted names in the folder, or in a folder below it, including hidden files.
  std::vector<std::string> Names(const std::string& below = "") const;

  std::string Read(const std::string& name) const;
  void Write(const std::string& name, const std::string& contents) const;

 private:
  std::string path_;
};

}  // namespace lockstep::checkpoint::testing

#endif  // LOCKSTEP_CHECKPOINT_TESTING_FOLDER_H_
