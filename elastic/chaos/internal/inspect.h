// Reads the kernel's view of processes and folders.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INSPECT_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INSPECT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::elastic::chaos::internal {

// The names in a folder in their order, without hidden ones. None if there is no such folder.
std::vector<std::string> NamesIn(const std::string& path);

// The processes whose environment contains `marker`, by pid. Other users' processes cannot be read.
std::vector<pid_t> ProcessesWith(absl::string_view marker);

// The file that a process executes; "" if it is gone.
std::string ProgramOf(pid_t pid);

// Its name, its state, and the kernel's stacks of its threads where they may be read.
std::string DumpOf(pid_t pid);

// The end of a text file.
std::string LastLines(const std::string& path);

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_INSPECT_H_
