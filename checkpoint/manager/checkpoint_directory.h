// The files of a Manager in one directory, as their writer sees them; knows no other ranks.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_CHECKPOINT_DIRECTORY_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/manager/retention.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// What Manager adds to the dict that it saves, under this key.
inline constexpr char kManagersKey[] = "lockstep";

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  std::map<std::string, double> metrics;
  int world_size = 1;  // of the ranks that saved it
};

// A checkpoint's entry kManagersKey.
Value ManagersEntry(const CheckpointInfo& info, const std::vector<Value>& rank_states);

// What the entry says of the file at `path`. InvalidArgument, naming the path, where no Manager wrote it.
absl::StatusOr<CheckpointInfo> InfoOf(const std::string& path, const Value& entry);

class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::string path) : path_(std::move(path)) {}

  std::string PathOf(int64_t step) const;  // step_00001234.pt; more digits where they are needed
  std::string BestPath() const;            // model_best.pt

  // Makes the directory, and those above it, where they are missing, and removes what killed saves left behind.
  absl::Status Prepare() const;

  // The steps that have a file, ascending.
  absl::StatusOr<std::vector<int64_t>> Steps() const;

  // What the file says of itself. With `verify` all of it is read and checked, in little memory: DataLoss where it is
  // damaged.
  absl::StatusOr<CheckpointInfo> Read(const std::string& path, bool verify) const;

  // Makes BestPath() the file of `step`, in one step: as a second name of it or, where the file system has no such
  // thing, as a copy. `sync`: flush to the disk.
  absl::Status SetBest(int64_t step, bool sync) const;

  // Removes the files that `retention` does not keep, `saved` being the step just saved; no other file. The first
  // error; all are tried.
  absl::Status RemoveOld(int64_t saved, const Retention& retention) const;

 private:
  absl::StatusOr<std::vector<std::string>> Names() const;

  std::string path_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_CHECKPOINT_DIRECTORY_H_
