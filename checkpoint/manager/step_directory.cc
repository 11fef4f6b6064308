#include "lockstep/checkpoint/manager/step_directory.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"

namespace lockstep::checkpoint {
namespace {

constexpr char kBest[] = "model_best.pt";

std::string NameOf(int64_t step) { return absl::StrFormat("step_%08d.pt", step); }

// Accepts only names from NameOf: a file that a user named step_5.pt does not belong to the Manager.
std::optional<int64_t> StepOf(absl::string_view name) {
  absl::string_view digits = name;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&digits, "step_") || !absl::ConsumeSuffix(&digits, ".pt")) return std::nullopt;
  if (!absl::SimpleAtoi(digits, &step) || step < 0 || NameOf(step) != name) return std::nullopt;
  return step;
}

bool IsManagers(absl::string_view name) { return name == kBest || StepOf(name).has_value(); }

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status CopyFile(const std::string& from, const std::string& to, bool sync) {
  constexpr size_t kBlock = size_t{4} << 20;
  const absl::StatusOr<file::ByteSource> opened = file::OpenFile(from);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(opened.status(), from));
  const file::ByteSource& source = *opened;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<file::AtomicFile> file, file::AtomicFile::Create(to, sync));
  std::string block(std::min<uint64_t>(kBlock, source.size), '\0');
  for (uint64_t done = 0; done < source.size; done += block.size()) {
    const size_t count = std::min<uint64_t>(block.size(), source.size - done);
    LOCKSTEP_RETURN_IF_ERROR(source.read(done, &block[0], count));
    LOCKSTEP_RETURN_IF_ERROR(file->Append(block.data(), count));
  }
  return file->Commit();
}

}  // namespace

std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps, int64_t saved, const Retention& retention) {
  std::vector<int64_t> removed;
  if (retention.keep_last == 0) return removed;
  for (size_t i = 0; i + retention.keep_last < steps.size(); ++i) {
    const bool kept = steps[i] == saved || (retention.keep_every > 0 && steps[i] % retention.keep_every == 0);
    if (!kept) removed.push_back(steps[i]);
  }
  return removed;
}

Value ManagersEntry(const CheckpointInfo& info, const std::vector<Value>& rank_states) {
  Value metrics = Value::Dict();
  for (const auto& [name, value] : info.metrics) metrics.Set(name, value);
  return Value::Dict({{"step", info.step},
                      {"metrics", metrics},
                      {"world_size", info.world_size},
                      {"rank_states", Value::List(rank_states)}});
}

absl::StatusOr<CheckpointInfo> InfoOf(const std::string& path, const Value& entry) {
  const std::string where = absl::StrCat(path, ": [\"", kManagersKey, "\"]");
  const auto step = GetInt(entry, "step"), world_size = GetInt(entry, "world_size");
  const auto metrics = GetDict(entry, "metrics");
  const auto states = GetItems(entry, "rank_states");
  for (const absl::Status& status : {step.status(), world_size.status(), metrics.status(), states.status()}) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(status, where));
  }
  CheckpointInfo info;
  info.step = *step;
  info.path = path;
  info.world_size = static_cast<int>(*world_size);
  for (const auto& [name, value] : metrics->entries()) {
    if (name.is_string() && value.is_double()) info.metrics[name.string_value()] = value.double_value();
  }
  return info;
}

std::string StepDirectory::PathOf(int64_t step) const { return absl::StrCat(path_, "/", NameOf(step)); }

std::string StepDirectory::BestPath() const { return absl::StrCat(path_, "/", kBest); }

absl::StatusOr<std::vector<std::string>> StepDirectory::Names() const {
  DIR* const entries = opendir(path_.c_str());
  if (!entries) return SystemError("list the directory", path_);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) names.push_back(entry->d_name);
  closedir(entries);
  return names;
}

absl::Status StepDirectory::Prepare() const {
  if (const auto failed = MakeFolders(path_)) {
    return absl::ErrnoToStatus(failed->error, absl::StrCat(path_, ": make the directory"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  for (absl::string_view name : names) {
    if (!absl::ConsumePrefix(&name, ".")) continue;
    const absl::string_view target = name.substr(0, name.rfind(".lockstep-"));
    // Creating a temporary file removes the abandoned temporary files of the same path.
    if (target != name && IsManagers(target)) {
      file::AtomicFile::Create(absl::StrCat(path_, "/", target), /*sync=*/false).IgnoreError();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> StepDirectory::Steps() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<CheckpointInfo> StepDirectory::Read(const std::string& path, bool verify) const {
  LoadOptions options;
  options.map_location = "cpu";
  options.verify = verify;
  LOCKSTEP_ASSIGN_OR_RETURN(const Value entry, LoadEntry(path, kManagersKey, options));
  return InfoOf(path, entry);
}

absl::Status StepDirectory::SetBest(int64_t step, bool sync) const {
  const std::string from = PathOf(step), to = BestPath();
  // Named like AtomicFile's temporary files, so that it is removed like them if this save is killed.
  const std::string temporary = absl::StrFormat("%s/.%s.lockstep-%016x", path_, kBest, step);
  unlink(temporary.c_str());
  if (link(from.c_str(), temporary.c_str()) != 0) return Annotate(CopyFile(from, to, sync), to);
  if (rename(temporary.c_str(), to.c_str()) != 0) {
    const absl::Status status = SystemError("rename the temporary file", to);
    unlink(temporary.c_str());
    return status;
  }
  // rename() does nothing if both names refer to one file.
  unlink(temporary.c_str());
  if (sync) FlushFolder(path_);
  return absl::OkStatus();
}

absl::Status StepDirectory::RemoveOld(int64_t saved, const Retention& retention) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  absl::Status status;
  for (const int64_t step : StepsToRemove(steps, saved, retention)) {
    const std::string path = PathOf(step);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) status.Update(SystemError("remove an old checkpoint", path));
  }
  return status;
}

}  // namespace lockstep::checkpoint
