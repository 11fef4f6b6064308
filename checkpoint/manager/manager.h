// Manages the checkpoints of a training: which are kept, which is the latest. All ranks agree on it.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/async_saver.h"
#include "lockstep/checkpoint/manager/step_directory.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// The ranks that write. It determines which ranks must see the directory.
enum class Writers {
  kRankZero,  // rank 0, to a directory that every rank sees
  kEachNode   // the lowest rank of each host, to a directory on that host
};

// Must be the same on every rank, except on_warning.
struct ManagerOptions {
  // The checkpoints to keep: the keep_last highest steps (0: all), the steps divisible by keep_every (0: none), and the
  // best one.
  int keep_last = 3;
  int64_t keep_every = 0;
  // The entry of SaveArguments::metrics that determines the best checkpoint. "": none.
  std::string best_metric = "";
  bool best_is_highest = true;
  Writers writers = Writers::kRankZero;
  // The files do not tell how many ranks saved them: their world_size is 0, and they have no rank_states. So trainings
  // with the same result on any number of ranks have the same files. No rank may pass a rank_state then.
  bool independent_of_ranks = false;
  // Save returns once the tensors are copied. See async_saver.h.
  bool asynchronous = false;
  // Without `sync`, old files may be removed before the new one is on the disk.
  SaveOptions save = {};
  // Gets a line for the user on one rank, for example about a damaged file that is passed over. If `asynchronous` is set,
  // another thread may call it. Null: the line is written to standard error.
  std::function<void(const std::string& line)> on_warning = nullptr;
};

struct SaveArguments {
  // Only rank 0's are used.
  std::map<std::string, double> metrics = {};
  // State of this rank only, such as RngState() and its sampler's state. It is gathered from all ranks, so keep it
  // small.
  Value rank_state = {};
};

struct Restored {
  CheckpointInfo info;
  // The saved value.
  Value value;
  // This rank's state, if the world size is the same as at the save; otherwise None.
  Value rank_state;
  // The states of all ranks that saved.
  std::vector<Value> rank_states;
};

// Keeps a directory of checkpoints. Each is a file that Python's torch.load(weights_only=True) reads:
//
//   step_00001000.pt   the dict given to Save, and under "lockstep" a dict of "step", "metrics", "world_size" and
//                      "rank_states"
//   model_best.pt      the same for the best step: a hard link to its file or, if that is not possible, a copy
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto manager, Manager::Create("run7", group.get(), {.best_metric = "accuracy"}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Restored> last, manager->LoadLatest());
//   if (last) LOCKSTEP_RETURN_IF_ERROR(Resume(last->value, last->rank_state));
//   for (int64_t step = last ? last->info.step + 1 : 0; step < steps; ++step) {
//     ...
//     LOCKSTEP_RETURN_IF_ERROR(manager->Save(step, Checkpoint(), {{{"accuracy", accuracy}}, state}));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(manager->Wait());
//
// Every rank must call Create, and then the same functions in the same order as the other ranks, as with the group's
// collectives. The functions make a few small collectives, and gather rank_state. No other thread communicates. All
// ranks return the same outcome: if one rank fails, for example on a full disk, every rank gets its error with its
// name. If a rank dies during a call, the group fails. After an error of a call the Manager stays usable, unless the
// group has failed.
//
// Every file is created or replaced in one step, so if a writer is killed at any moment, the previous files are intact.
// The latest checkpoint is not recorded separately, where the record could be wrong: it is the highest step with an
// intact file, and the writers decide it for all ranks. To go back to an earlier step, remove the later files first.
//
// The Manager never removes files that it did not name. Only one Manager at a time may write to a directory. Not
// thread-safe. The destructor waits for an asynchronous save. Call Wait() before it to get the outcome, and so that no
// rank leaves early.
class Manager {
 public:
  // `group` is borrowed; nullptr means this process only. Creates the directory if it does not exist. A relative path
  // refers to the current directory at the time of this call. InvalidArgument: bad options, or options that differ
  // between ranks. Other errors are the system's errors for the directory.
  static absl::StatusOr<std::unique_ptr<Manager>> Create(const std::string& directory, comm::ProcessGroup* group,
                                                         ManagerOptions options = {});

  // Saves `value`, a dict without the key "lockstep", as `step`. Replaces the file of that step if it exists, and
  // removes old files once the new one is on the disk. Only the writers' `value` is used; the other ranks may pass an
  // empty one.
  //
  // Returns when the file is in place, on all ranks. If `asynchronous` is set, it returns when the tensors are copied,
  // and the next Save or Wait returns the outcome; such a Save starts its save even if that outcome is an error. Errors
  // name the rank and the file. InvalidArgument, before anything is written: the arguments cannot be saved, or `step`
  // differs between ranks. ResourceExhausted, PermissionDenied, ...: errors of the system. After an error the previous
  // files are unchanged.
  absl::Status Save(int64_t step, const Value& value, const SaveArguments& arguments = {});

  // If saves are asynchronous, allocates the writers' memory for such a value in the background, so that the first Save
  // takes no longer than later ones. See AsyncSaver::Prepare. Not collective: each rank may call it or not.
  absl::Status Prepare(const Value& value);

  // Blocks until the last Save is done on all ranks. Returns its outcome if no call has returned it yet, and otherwise
  // OK.
  absl::Status Wait();

  // The steps with a file, ascending. With Writers::kEachNode: with a file on every host.
  absl::StatusOr<std::vector<int64_t>> Steps();

  // The highest step with an intact file, after a save under way is done. nullopt if no file exists. If a file is damaged,
  // the previous step is used, and rank 0 warns with the file, the reason and the step. Without a group each process
  // does. DataLoss: all files are damaged. Reads the file.
  absl::StatusOr<std::optional<CheckpointInfo>> Latest();

  // The best checkpoint, or nullopt if there is none. DataLoss: its file is damaged.
  absl::StatusOr<std::optional<CheckpointInfo>> Best();

  // Loads the checkpoint on every rank. Options such as {.map_location = "cuda:1"} may differ between ranks. Returns
  // the errors of Load of checkpoint.h on any rank.
  absl::StatusOr<Restored> Load(const CheckpointInfo& checkpoint, const LoadOptions& options = {});

  // Load() of Latest(), or nullopt if no file exists.
  absl::StatusOr<std::optional<Restored>> LoadLatest(const LoadOptions& options = {});

 private:
  Manager(std::string directory, comm::ProcessGroup* group, ManagerOptions options);

  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  absl::Status ChooseWriters(const absl::Status& valid);
  absl::Status PrepareDirectories();
  absl::StatusOr<std::string> PrepareDirectory() const;
  absl::Status Begin(int64_t step, const Value& value, const SaveArguments& arguments);
  absl::Status CheckArguments(int64_t step, const Value& value, const SaveArguments& arguments) const;
  absl::StatusOr<std::string> Request(int64_t step, const Value& value, const SaveArguments& arguments) const;
  absl::Status Write(int64_t step, Value value, const std::vector<std::string>& requests);
  absl::Status Publish(const CheckpointInfo& info);
  void Warn(const std::string& line) const;
  bool IsBest(const CheckpointInfo& info) const;
  absl::StatusOr<std::string> ReadHere(const std::string& path) const;
  absl::StatusOr<CheckpointInfo> Agreed(const std::vector<absl::StatusOr<std::string>>& read,
                                        const std::string& path) const;
  absl::StatusOr<Restored> LoadHere(const std::string& path, const LoadOptions& options) const;

  comm::ProcessGroup* const group_;
  const ManagerOptions options_;
  const StepDirectory directory_;
  bool writer_ = false;
  std::vector<int> writers_;    // the ranks that write, ascending
  std::optional<double> best_;  // metric of the best checkpoint; on writers only
  bool unsettled_ = false;  // whether the ranks have not agreed on the last save's outcome yet; the same on every rank
  absl::Status written_;    // this rank's part of that outcome, unless saver_ has it
  AsyncSaver saver_;        // last, since its thread uses the other members
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_
