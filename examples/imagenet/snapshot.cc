#include "lockstep/examples/imagenet/snapshot.h"

#include <ATen/ops/full.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::Value;

// A second name of the file, in one step; a copy where the file system has no such thing.
absl::Status Link(const std::string& from, const std::string& to) {
  const std::string temporary = absl::StrCat(to, ".new");
  std::error_code error;
  std::filesystem::remove(temporary, error);
  std::filesystem::create_hard_link(from, temporary, error);
  if (error) std::filesystem::copy_file(from, temporary, error);
  if (!error) std::filesystem::rename(temporary, to, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(to, ": cannot become a copy of ", from, ": ", error.message()));
}

// Python's example saves a tensor after one validation and a number after another.
absl::StatusOr<double> BestTop1(const Value& file) {
  const Value* const best = file.Find("best_acc1");
  if (best == nullptr) return absl::NotFoundError("it has no best_acc1");
  if (best->is_tensor() && best->tensor().numel() == 1) return best->tensor().item<double>();
  return checkpoint::GetDouble(file, "best_acc1");
}

absl::Status RestoreSampler(const Value& file, sampler::DistributedSampler& sampler) {
  if (file.Find("sampler") == nullptr) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::GetDict(file, "sampler"));
  LOCKSTEP_ASSIGN_OR_RETURN(const sampler::SamplerState state, sampler::ToSamplerState(value));
  return sampler.Restore(state);
}

absl::StatusOr<Position> Apply(const Value& file, const std::string& arch, Learner& learner,
                               sampler::DistributedSampler* sampler) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string found, checkpoint::GetString(file, "arch"));
  if (found != arch) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of another model: expected arch \"", arch, "\", found \"", found, "\""));
  }
  Position position;
  LOCKSTEP_ASSIGN_OR_RETURN(position.epoch, checkpoint::GetInt(file, "epoch"));
  LOCKSTEP_ASSIGN_OR_RETURN(position.best_acc1, BestTop1(file));
  if (sampler == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(learner.RestoreWeights(file));
    return position;
  }
  LOCKSTEP_RETURN_IF_ERROR(RestoreSampler(file, *sampler));
  LOCKSTEP_RETURN_IF_ERROR(learner.Restore(file));
  return position;
}

}  // namespace

std::string SnapshotPath(const std::string& directory) { return absl::StrCat(directory, "/checkpoint.pt"); }
std::string BestPath(const std::string& directory) { return absl::StrCat(directory, "/model_best.pt"); }

absl::Status SaveSnapshot(const std::string& directory, const std::string& arch, const Position& position,
                          const Learner& learner, const sampler::SamplerState& sampler, bool is_best) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value::Entry> learned, learner.State());
  std::vector<Value::Entry> entries = {{"epoch", position.epoch},
                                       {"arch", arch},
                                       {"best_acc1", at::full({}, position.best_acc1, at::kDouble)},
                                       {"sampler", sampler::ToValue(sampler)}};
  entries.insert(entries.end(), learned.begin(), learned.end());
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(SnapshotPath(directory), Value::Dict(entries)));
  return is_best ? Link(SnapshotPath(directory), BestPath(directory)) : absl::OkStatus();
}

absl::StatusOr<Position> LoadSnapshot(const std::string& path, const std::string& arch, Learner& learner,
                                      sampler::DistributedSampler* sampler) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, options));
  absl::StatusOr<Position> position = Apply(file, arch, learner, sampler);
  if (!position.ok()) return Annotate(position.status(), path);
  return position;
}

}  // namespace lockstep::examples::imagenet
