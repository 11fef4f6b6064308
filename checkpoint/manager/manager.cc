#include "lockstep/checkpoint/manager/manager.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/file/path.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::checkpoint {
namespace {

// The options that must be the same on every rank.
std::string Described(const ManagerOptions& options) {
  return absl::StrCat("keep_last ", options.keep_last, ", keep_every ", options.keep_every, ", best_metric \"",
                      options.best_metric, "\", best_is_highest ", options.best_is_highest, ", writers ",
                      options.writers == Writers::kEachNode ? "kEachNode" : "kRankZero", ", independent_of_ranks ",
                      options.independent_of_ranks, ", asynchronous ", options.asynchronous);
}

absl::Status CheckOptions(const std::string& directory, const ManagerOptions& options) {
  if (directory.empty()) return absl::InvalidArgumentError("the directory's name is empty");
  if (options.keep_last >= 0 && options.keep_every >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected keep_last and keep_every of 0 or more, found ",
                                                 options.keep_last, " and ", options.keep_every));
}

// "identity\noptions", by rank.
absl::Status CheckSameOptions(const std::vector<std::string>& ranks) {
  const std::string first = ranks[0].substr(ranks[0].find('\n') + 1);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const std::string found = ranks[rank].substr(ranks[rank].find('\n') + 1);
    if (found == first) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the ranks' options differ: rank 0 has ", first, "; rank ", rank, " has ", found));
  }
  return absl::OkStatus();
}

// The lowest rank of each host.
absl::StatusOr<std::vector<int>> FirstOfEachHost(const std::vector<std::string>& ranks) {
  std::vector<comm::RankIdentity> hosts;
  std::vector<int> first;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankIdentity identity,
                              comm::DecodeIdentity(ranks[rank].substr(0, ranks[rank].find('\n'))));
    const bool known = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const comm::RankIdentity& host) { return comm::OnOneHost(host, identity); });
    if (known) continue;
    hosts.push_back(identity);
    first.push_back(static_cast<int>(rank));
  }
  return first;
}

std::vector<int64_t> ParseSteps(absl::string_view text) {
  std::vector<int64_t> steps;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int64_t step = 0;
    if (absl::SimpleAtoi(word, &step)) steps.push_back(step);
  }
  return steps;
}

// True if `status` is an error of the file's contents, not of the access to it.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status) || absl::IsUnknown(status);
}

// The line about `damaged` files, the newest ones. `newest` is the error of the last.
std::string PassedOver(int damaged, const absl::Status& newest, int64_t used) {
  const std::string which = damaged == 1 ? "checkpoint is" : absl::StrCat(damaged, " checkpoints are");
  return absl::StrCat("the newest ", which, " damaged, so step ", used, " is used: ", newest.message());
}

absl::Status CheckSameStep(const std::vector<std::string>& requests) {
  const auto step_of = [](const std::string& request) { return request.substr(0, request.find('\n')); };
  for (size_t rank = 1; rank < requests.size(); ++rank) {
    if (step_of(requests[rank]) == step_of(requests[0])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the ranks save different steps: rank 0 saves ",
                                                   step_of(requests[0]), ", rank ", rank, " ",
                                                   step_of(requests[rank])));
  }
  return absl::OkStatus();
}

// {"metrics", "state"}.
absl::StatusOr<Value> Contents(absl::string_view request) {
  return Deserialize(request.substr(request.find('\n') + 1), {.map_location = "cpu"});
}

Value Without(const Value& dict, const char* key) {
  std::vector<Value::Entry> entries;
  for (const Value::Entry& entry : dict.entries()) {
    if (!entry.first.is_string() || entry.first.string_value() != key) entries.push_back(entry);
  }
  Value rest = Value::Dict(entries, dict.dict_kind());
  if (dict.attributes().is_dict()) rest.SetAttributes(dict.attributes());
  return rest;
}

absl::Status Both(const absl::Status& first, const absl::Status& second) {
  if (first.ok() || second.ok()) return first.ok() ? second : first;
  return absl::Status(first.code(), absl::StrCat(first.message(), "; then ", second.message()));
}

}  // namespace

Manager::Manager(std::string directory, comm::ProcessGroup* group, ManagerOptions options)
    : group_(group), options_(std::move(options)), directory_(std::move(directory)) {}

absl::StatusOr<std::unique_ptr<Manager>> Manager::Create(const std::string& directory, comm::ProcessGroup* group,
                                                         ManagerOptions options) {
  const absl::Status valid = CheckOptions(directory, options);
  std::string path = file::AbsolutePath(directory);
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  std::unique_ptr<Manager> manager(new Manager(std::move(path), group, std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(manager->ChooseWriters(valid));
  LOCKSTEP_RETURN_IF_ERROR(manager->PrepareDirectories());
  return manager;
}

absl::Status Manager::ChooseWriters(const absl::Status& valid) {
  absl::StatusOr<std::string> own =
      absl::StrCat(comm::EncodeIdentity(comm::IdentityOfThisProcess(rank())), "\n", Described(options_));
  if (!valid.ok()) own = valid;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, comm::GatherAgreed(group_, "Manager::Create", own));
  LOCKSTEP_RETURN_IF_ERROR(CheckSameOptions(ranks));
  writers_ = {0};
  if (options_.writers == Writers::kEachNode) {
    LOCKSTEP_ASSIGN_OR_RETURN(writers_, FirstOfEachHost(ranks));
  }
  writer_ = std::find(writers_.begin(), writers_.end(), rank()) != writers_.end();
  return absl::OkStatus();
}

// All writers use the first writer's best value, so that they make the same decisions.
absl::Status Manager::PrepareDirectories() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> bests,
                            comm::GatherAgreed(group_, "Manager::Create", PrepareDirectory()));
  double best = 0;
  if (absl::SimpleAtod(bests[writers_[0]], &best)) best_ = best;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Manager::PrepareDirectory() const {
  if (!writer_) return std::string();
  LOCKSTEP_RETURN_IF_ERROR(directory_.Prepare());
  if (options_.best_metric.empty()) return std::string();
  const absl::StatusOr<CheckpointInfo> best = directory_.Read(directory_.BestPath(), /*verify=*/false);
  if (!best.ok() && !absl::IsNotFound(best.status())) {
    Warn(absl::StrCat("the next checkpoint will be the best: ", best.status().message()));
  }
  if (!best.ok()) return std::string();
  const auto metric = best->metrics.find(options_.best_metric);
  // An earlier run with another metric may have chosen it, so its value of this metric may be NaN.
  if (metric == best->metrics.end() || std::isnan(metric->second)) return std::string();
  return absl::StrFormat("%.17g", metric->second);
}

absl::Status Manager::CheckArguments(int64_t step, const Value& value, const SaveArguments& arguments) const {
  if (step < 0) return absl::InvalidArgumentError(absl::StrCat("expected a step of 0 or more, found ", step));
  if (options_.independent_of_ranks && !arguments.rank_state.is_none()) {
    return absl::InvalidArgumentError(absl::StrCat("step ", step,
                                                   ": expected no rank_state with independent_of_ranks, found a ",
                                                   arguments.rank_state.type_name()));
  }
  if (!writer_) return absl::OkStatus();
  if (!value.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("step ", step, ": expected a dict, found ", value.type_name()));
  }
  if (!value.Find(kManagersKey)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step ", step, ": the key \"", kManagersKey, "\" is the Manager's own"));
}

// "step\n" and the serialized {"metrics", "state"}.
absl::StatusOr<std::string> Manager::Request(int64_t step, const Value& value, const SaveArguments& arguments) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckArguments(step, value, arguments));
  Value metrics = Value::Dict();
  for (const auto& [name, metric] : arguments.metrics) metrics.Set(name, metric);
  const auto contents = Serialize(Value::Dict({{"metrics", metrics}, {"state", arguments.rank_state}}));
  if (!contents.ok()) return Annotate(contents.status(), absl::StrCat("step ", step, ": rank_state or metrics"));
  return absl::StrCat(step, "\n", *contents);
}

absl::Status Manager::Save(int64_t step, const Value& value, const SaveArguments& arguments) {
  const absl::Status earlier = Wait();
  absl::Status status = Begin(step, value, arguments);
  if (status.ok() && !options_.asynchronous) status = Wait();
  return Both(earlier, status);
}

absl::Status Manager::Begin(int64_t step, const Value& value, const SaveArguments& arguments) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> requests,
                            comm::GatherAgreed(group_, "Manager::Save", Request(step, value, arguments)));
  LOCKSTEP_RETURN_IF_ERROR(CheckSameStep(requests));
  unsettled_ = true;
  written_ = writer_ ? Write(step, value, requests) : absl::OkStatus();
  return absl::OkStatus();
}

absl::Status Manager::Write(int64_t step, Value value, const std::vector<std::string>& requests) {
  CheckpointInfo info{step, directory_.PathOf(step), {}, options_.independent_of_ranks ? 0 : size()};
  std::vector<Value> states;
  for (const std::string& request : requests) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value contents, Contents(request));
    states.push_back(*contents.Find("state"));
    if (states.size() > 1) continue;
    for (const auto& [name, metric] : contents.Find("metrics")->entries()) {
      info.metrics[name.string_value()] = metric.double_value();
    }
  }
  if (options_.independent_of_ranks) states.clear();
  value.Set(kManagersKey, ManagersEntry(info, states));
  if (options_.asynchronous)
    return saver_.Save(info.path, value, options_.save, [this, info] { return Publish(info); });
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(info.path, value, options_.save));
  return Annotate(Publish(info), info.path);
}

void Manager::Warn(const std::string& line) const {
  if (options_.on_warning) return options_.on_warning(line);
  std::cerr << absl::StrCat("warning: ", line, "\n");
}

bool Manager::IsBest(const CheckpointInfo& info) const {
  const auto metric = info.metrics.find(options_.best_metric);
  if (options_.best_metric.empty() || metric == info.metrics.end() || std::isnan(metric->second)) return false;
  if (!best_) return true;
  return options_.best_is_highest ? metric->second > *best_ : metric->second < *best_;
}

// Runs on the saver's thread if asynchronous. No other thread uses best_ until that has ended.
absl::Status Manager::Publish(const CheckpointInfo& info) {
  if (IsBest(info)) {
    const absl::Status set = directory_.SetBest(info.step, options_.save.sync);
    if (!set.ok()) return Annotate(set, "the checkpoint is in place, but is not the best yet");
    best_ = info.metrics.at(options_.best_metric);
  }
  const absl::Status removed = directory_.RemoveOld(info.step, {options_.keep_last, options_.keep_every});
  if (!removed.ok()) Warn(std::string(removed.message()));
  return absl::OkStatus();
}

absl::Status Manager::Prepare(const Value& value) {
  return writer_ && options_.asynchronous ? saver_.Prepare(value) : absl::OkStatus();
}

absl::Status Manager::Wait() {
  if (!std::exchange(unsettled_, false)) return absl::OkStatus();
  if (written_.ok() && writer_ && options_.asynchronous) written_ = saver_.Wait();
  return comm::Agree(group_, "Manager::Wait", written_);
}

absl::StatusOr<std::vector<int64_t>> Manager::Steps() {
  saver_.Wait().IgnoreError();  // Wait() will return it
  absl::StatusOr<std::string> own = std::string();
  if (writer_) {
    const absl::StatusOr<std::vector<int64_t>> steps = directory_.Steps();
    own = steps.ok() ? absl::StatusOr<std::string>(absl::StrJoin(*steps, " ")) : steps.status();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, comm::GatherAgreed(group_, "Manager::Steps", own));
  std::vector<int64_t> common = ParseSteps(gathered[writers_[0]]);
  for (const int writer : writers_) {
    const std::vector<int64_t> steps = ParseSteps(gathered[writer]);
    std::vector<int64_t> both;
    std::set_intersection(common.begin(), common.end(), steps.begin(), steps.end(), std::back_inserter(both));
    common = std::move(both);
  }
  return common;
}

absl::StatusOr<std::string> Manager::ReadHere(const std::string& path) const {
  if (!writer_) return std::string();
  LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointInfo info, directory_.Read(path, /*verify=*/true));
  return Serialize(ManagersEntry(info, {}));
}

// The writers' agreement on the entry that each has read; `path` is this rank's.
absl::StatusOr<CheckpointInfo> Manager::Agreed(const std::vector<absl::StatusOr<std::string>>& read,
                                               const std::string& path) const {
  std::optional<CheckpointInfo> agreed;
  for (const int writer : writers_) {
    LOCKSTEP_RETURN_IF_ERROR(read[writer].status());
    LOCKSTEP_ASSIGN_OR_RETURN(const Value entry, Deserialize(*read[writer]));
    LOCKSTEP_ASSIGN_OR_RETURN(const CheckpointInfo info, InfoOf(path, entry));
    if (!agreed) agreed = info;
    if (agreed->step == info.step) continue;
    return absl::DataLossError(absl::StrCat(path, ": on rank ", writers_[0], " it is of step ", agreed->step,
                                            ", on rank ", writer, " of step ", info.step));
  }
  return *agreed;
}

absl::StatusOr<std::optional<CheckpointInfo>> Manager::Latest() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  absl::Status newest;
  int damaged = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = directory_.PathOf(*step);
    LOCKSTEP_ASSIGN_OR_RETURN(const auto read, comm::GatherOutcomes(group_, "Manager::Latest", ReadHere(path)));
    const absl::StatusOr<CheckpointInfo> info = Agreed(read, path);
    if (info.ok() && damaged > 0 && rank() == 0) Warn(PassedOver(damaged, newest, info->step));
    if (info.ok()) return info;
    if (!IsDamage(info.status())) return info.status();
    newest.Update(info.status());
    ++damaged;
  }
  if (newest.ok()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("none of ", damaged, " checkpoints is intact: remove them to begin anew; ", newest.message()));
}

absl::StatusOr<std::optional<CheckpointInfo>> Manager::Best() {
  saver_.Wait().IgnoreError();
  const std::string path = directory_.BestPath();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto read, comm::GatherOutcomes(group_, "Manager::Best", ReadHere(path)));
  const bool none = std::all_of(writers_.begin(), writers_.end(),
                                [&](int writer) { return absl::IsNotFound(read[writer].status()); });
  if (none) return std::nullopt;
  return Agreed(read, path);
}

absl::StatusOr<Restored> Manager::LoadHere(const std::string& path, const LoadOptions& options) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value whole, checkpoint::Load(path, options));
  Restored restored;
  const Value* entry = whole.Find(kManagersKey);
  LOCKSTEP_ASSIGN_OR_RETURN(restored.info, InfoOf(path, entry ? *entry : Value()));
  restored.value = Without(whole, kManagersKey);
  restored.rank_states = entry->Find("rank_states")->items();
  if (restored.rank_states.size() == size()) restored.rank_state = restored.rank_states[rank()];
  return restored;
}

absl::StatusOr<Restored> Manager::Load(const CheckpointInfo& checkpoint, const LoadOptions& options) {
  absl::StatusOr<Restored> restored = LoadHere(checkpoint.path, options);
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(group_, "Manager::Load", restored.status()));
  return restored;
}

absl::StatusOr<std::optional<Restored>> Manager::LoadLatest(const LoadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> latest, Latest());
  if (!latest) return std::nullopt;
  return Load(*latest, options);
}

}  // namespace lockstep::checkpoint
