// A training's checkpoints: which are kept, which is the latest, and that all ranks think the same of it.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "lockstep/checkpoint/async_saver.h"
#include "lockstep/checkpoint/manager/checkpoint_directory.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// Who writes, and who must see the directory.
enum class Writers {
  kRankZero,  // rank 0, to a directory that every rank sees
  kEachNode   // the lowest rank of each host, to a directory of the host's own
};

// The same on every rank.
struct ManagerOptions {
  // The files that are kept: those of the highest steps (0: all), those of steps that keep_every divides (0: none), and
  // the best.
  int keep_last = 3;
  int64_t keep_every = 0;
  // Of SaveArguments::metrics: what makes a checkpoint the best so far. "": there is no best.
  std::string best_metric = "";
  bool best_is_highest = true;
  Writers writers = Writers::kRankZero;
  // Save returns once the tensors are copied; see async_saver.h.
  bool asynchronous = false;
  // Without `sync` old files go before the new one is known to be on the disk.
  SaveOptions save = {};
};

struct SaveArguments {
  // Rank 0's are taken.
  std::map<std::string, double> metrics = {};
  // What each rank has of its own, such as RngState() and its sampler's state: gathered, so keep it small.
  Value rank_state = {};
};

struct Restored {
  CheckpointInfo info;
  // The value saved.
  Value value;
  // This rank's, where as many ranks saved as are here now; else None.
  Value rank_state;
  // Every rank's that saved.
  std::vector<Value> rank_states;
};

// Keeps a directory of checkpoints, each a file that Python's torch.load(weights_only=True) reads:
//
//   step_00001000.pt   the dict given to Save, and under "lockstep" a dict of "step", "metrics", "world_size" and
//                      "rank_states"
//   model_best.pt      the same of the best step: a second name (hard link) of its file where there can be one
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto manager, Manager::Create("run7", group.get(), {.best_metric = "accuracy"}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const absl::optional<Restored> last, manager->LoadLatest());
//   if (last) LOCKSTEP_RETURN_IF_ERROR(Resume(last->value, last->rank_state));
//   for (int64_t step = last ? last->info.step + 1 : 0; step < steps; ++step) {
//     ...
//     LOCKSTEP_RETURN_IF_ERROR(manager->Save(step, Checkpoint(), {{{"accuracy", accuracy}}, state}));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(manager->Wait());
//
// Every rank calls Create, and then the same functions in the same order, as with the group's collectives, of which
// these make some: small ones, besides what rank_state takes. Nothing is sent from another thread. All ranks get the
// same outcome: an error of one, such as a full disk, is every rank's, and names the rank; a rank that dies in the
// middle is the group's error. After an error of its own the Manager goes on; a group that has failed has failed.
//
// A file is replaced or appears in one step, so whatever kills a writer, and whenever, the files before are whole. The
// latest checkpoint is not written down anywhere, where it could be wrong: it is the highest step whose file is whole,
// decided by the writers for all ranks. To go back to an earlier step remove the later files first.
//
// Files that the Manager did not name are left alone. One Manager at a time may write to a directory. Not thread-safe.
// The destructor waits for an asynchronous save; call Wait() before, to know how it ended and so that no rank leaves
// before.
class Manager {
 public:
  // `group` is borrowed; nullptr: this process alone. Makes the directory where it is missing; a relative one is taken
  // from where the program is now, for as long as the Manager lives. InvalidArgument for bad
  // options, or options that differ between ranks; else what the system says of the directory.
  static absl::StatusOr<std::unique_ptr<Manager>> Create(const std::string& directory, comm::ProcessGroup* group,
                                                         ManagerOptions options = {});

  // Saves `value`, a dict without a key "lockstep", as `step`, replacing that step's file if there is one; removes old
  // files once the new one is on the disk. Only the writers' `value` is used; the other ranks may give none.
  //
  // Returns when the file is there, on all ranks. If asynchronous it returns when the tensors are copied; the outcome
  // is then told by the next Save, which begins its own all the same, or by Wait. Errors name the rank and the file:
  // InvalidArgument for arguments that cannot be saved or a step that is not every rank's, before anything is written;
  // ResourceExhausted, PermissionDenied, ...: what the system said. The previous files are then as they were.
  absl::Status Save(int64_t step, const Value& value, const SaveArguments& arguments = {});

  // Where saves are asynchronous, has the writers' memory ready for such a value, in the background, so that the first
  // Save takes no longer than the others; see AsyncSaver::Prepare. Not collective: any rank may call it, or none.
  absl::Status Prepare(const Value& value);

  // Blocks until the last Save is done, on all ranks. Its outcome if no call has told it yet, else OK.
  absl::Status Wait();

  // The steps that have a file, ascending; with Writers::kEachNode those that have one on every host.
  absl::StatusOr<std::vector<int64_t>> Steps();

  // The highest step whose file is whole, after a save under way; nothing where there are no files. A damaged file is
  // told in the log, and the one before taken; DataLoss where none is whole. Reads the file.
  absl::StatusOr<absl::optional<CheckpointInfo>> Latest();

  // The best; nothing where there is none. DataLoss where its file is damaged.
  absl::StatusOr<absl::optional<CheckpointInfo>> Best();

  // Loads it on every rank: {.map_location = "cuda:1"} and so on may be each rank's own. Errors are those of Load of
  // checkpoint.h, of any rank.
  absl::StatusOr<Restored> Load(const CheckpointInfo& checkpoint, const LoadOptions& options = {});

  // Latest, and Load of it.
  absl::StatusOr<absl::optional<Restored>> LoadLatest(const LoadOptions& options = {});

 private:
  Manager(std::string directory, comm::ProcessGroup* group, ManagerOptions options);

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  absl::Status ChooseWriters(const absl::Status& valid);
  absl::Status PrepareDirectories();
  absl::StatusOr<std::string> PrepareDirectory() const;
  absl::Status Begin(int64_t step, const Value& value, const SaveArguments& arguments);
  absl::Status CheckArguments(int64_t step, const Value& value) const;
  absl::StatusOr<std::string> Request(int64_t step, const Value& value, const SaveArguments& arguments) const;
  absl::Status Write(int64_t step, Value value, const std::vector<std::string>& requests);
  absl::Status Publish(const CheckpointInfo& info);
  bool IsBest(const CheckpointInfo& info) const;
  absl::StatusOr<std::string> ReadHere(const std::string& path) const;
  absl::StatusOr<CheckpointInfo> Agreed(const std::vector<absl::StatusOr<std::string>>& read,
                                        const std::string& path) const;
  absl::StatusOr<Restored> LoadHere(const std::string& path, const LoadOptions& options) const;

  comm::ProcessGroup* const group_;
  const ManagerOptions options_;
  const CheckpointDirectory directory_;
  bool writer_ = false;
  std::vector<int> writers_;     // their ranks, ascending
  absl::optional<double> best_;  // its metric; the writers' only
  bool unsettled_ = false;       // whether a save's outcome is not agreed on yet: the same on every rank
  absl::Status written_;         // this rank's part of that outcome, as far as no thread has it
  AsyncSaver saver_;             // last: its thread uses the others
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_MANAGER_H_
