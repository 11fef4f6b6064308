#include "lockstep/checkpoint/testing/folder.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::testing {

Folder::Folder() : path_(::testing::TempDir() + "/folder_XXXXXX") { EXPECT_NE(mkdtemp(&path_[0]), nullptr); }

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> Folder::Names(const std::string& below) const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_ + "/" + below)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Folder::Read(const std::string& name) const {
  std::ostringstream contents;
  contents << std::ifstream(path_ + "/" + name, std::ios::binary).rdbuf();
  return contents.str();
}

void Folder::Write(const std::string& name, const std::string& contents) const {
  std::ofstream(path_ + "/" + name, std::ios::binary).write(contents.data(), contents.size());
}

}  // namespace lockstep::checkpoint::testing
