#include "lockstep/checkpoint/sharded/sharded.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/file_system.h"
#include "lockstep/checkpoint/sharded/internal/entry_loader.h"
#include "lockstep/checkpoint/sharded/internal/saver.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/comm/agreement.h"

namespace lockstep::checkpoint {
namespace {

class Loader {
 public:
  Loader(std::string directory, const LoadOptions& options) : directory_(std::move(directory)), options_(options) {}

  absl::Status Plan(ShardedStateDict& state, std::vector<std::string>* missing) {
    LOCKSTEP_ASSIGN_OR_RETURN(metadata_, ReadShardedMetadata(directory_, options_));
    entries_ = std::make_unique<internal::EntryLoader>(directory_, metadata_, options_);
    return entries_->Plan(state, missing);
  }

  absl::Status Read() { return entries_->Read(); }

 private:
  const std::string directory_;
  const LoadOptions& options_;
  ShardedMetadata metadata_;
  std::unique_ptr<internal::EntryLoader> entries_;
};

// The result of f(), or its exception as a status.
template <typename F>
absl::Status Caught(F f) {
  absl::Status status;
  status.Update(TorchStatus("", [&] { status = f(); }));
  return status;
}

}  // namespace

absl::Status SaveSharded(absl::string_view directory, const ShardedStateDict& state, comm::ProcessGroup* group,
                         const SaveOptions& options) {
  return internal::SaveShardedOver(file::FileSystem::Real(), std::string(directory), state, group, options);
}

absl::Status LoadSharded(absl::string_view directory, ShardedStateDict& state, comm::ProcessGroup* group,
                         const LoadOptions& options, std::vector<std::string>* missing) {
  Loader loader(std::string(directory), options);
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(group, "LoadSharded", Caught([&] { return loader.Plan(state, missing); })));
  return comm::Agree(group, "LoadSharded", Caught([&] { return loader.Read(); }));
}

}  // namespace lockstep::checkpoint
