// The environment of the training programs for tests, and the files that they write to the folder $D.

#ifndef LOCKSTEP_ELASTIC_TESTING_TRAINING_FILES_H_
#define LOCKSTEP_ELASTIC_TESTING_TRAINING_FILES_H_

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/elastic/world.h"

namespace lockstep::elastic::testing {

inline std::string Text(const char* name) {
  const char* const text = getenv(name);
  return text ? text : "";
}

inline int64_t Number(const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  return absl::SimpleAtoi(Text(name), &value) ? value : otherwise;
}

inline std::string InFolder(const std::string& name) { return absl::StrCat(getenv("D"), "/", name); }

inline void Append(const std::string& name, const std::string& line) {
  const UniqueFd file(open(InFolder(name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  if (write(file.get(), line.data(), line.size()) < 0) std::cerr << "cannot write to $D/" << name << "\n";
}

// Appends this rank's line of its generation.
inline void Record(const World& world) {
  const auto& generation = world.generation();
  Append("generations", absl::StrCat(generation.number, " ", generation.rank, " of ", generation.world_size, ", pid ",
                                     getpid(), ", commits ", world.commits(), "\n"));
}

}  // namespace lockstep::elastic::testing

#endif  // LOCKSTEP_ELASTIC_TESTING_TRAINING_FILES_H_
