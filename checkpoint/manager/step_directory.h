// The files of a Manager in one directory, for the rank that writes them. Does not communicate.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_STEP_DIRECTORY_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_STEP_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// The key under which Manager adds an entry to the saved dict.
inline constexpr char kManagersKey[] = "lockstep";

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  std::map<std::string, double> metrics;
  int world_size = 1;  // the number of ranks that saved it; 0: the file does not tell
};

// Creates the entry kManagersKey of a checkpoint.
Value ManagersEntry(const CheckpointInfo& info, const std::vector<Value>& rank_states);

// Reads the entry of the file at `path`. InvalidArgument, naming the path: no Manager wrote the file.
absl::StatusOr<CheckpointInfo> InfoOf(const std::string& path, const Value& entry);

// Decides which checkpoints of a directory are removed.
struct Retention {
  int keep_last = 3;       // number of highest steps to keep; 0: all
  int64_t keep_every = 0;  // keeps the steps divisible by it; 0: none
};

// The steps of `steps` (ascending) that `retention` does not keep. Never contains `saved`, whose file is
// certainly intact.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps, int64_t saved, const Retention& retention);

class StepDirectory {
 public:
  explicit StepDirectory(std::string path) : path_(std::move(path)) {}

  std::string PathOf(int64_t step) const;  // step_00001234.pt; more digits if needed
  std::string BestPath() const;            // model_best.pt

  // Creates the directory and its missing parents, and removes the temporary files of killed saves.
  absl::Status Prepare() const;

  // The steps that have a file, ascending.
  absl::StatusOr<std::vector<int64_t>> Steps() const;

  // Reads the file's entry. With `verify` the whole file is read and checked, in little memory. DataLoss: the file is
  // damaged.
  absl::StatusOr<CheckpointInfo> Read(const std::string& path, bool verify) const;

  // Makes BestPath() the file of `step`, in one step: as a hard link or, if the file system does not support them, as a
  // copy. `sync`: flush to the disk.
  absl::Status SetBest(int64_t step, bool sync) const;

  // Removes the files that `retention` does not keep after saving step `saved`, and no others. Tries all of them, and
  // returns the first error.
  absl::Status RemoveOld(int64_t saved, const Retention& retention) const;

 private:
  absl::StatusOr<std::vector<std::string>> Names() const;

  std::string path_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_STEP_DIRECTORY_H_
