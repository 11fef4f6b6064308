#include "lockstep/checkpoint/sharded/internal/saver.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/sharded/internal/boxes.h"
#include "lockstep/checkpoint/sharded/internal/checkpoint_directory.h"
#include "lockstep/checkpoint/sharded/internal/chunk_writer.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"
#include "lockstep/checkpoint/sharded/internal/save_plan.h"
#include "lockstep/checkpoint/sharded/internal/value_hash.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/comm/agreement.h"

namespace lockstep::checkpoint::internal {
namespace {

// The limit for data from other ranks, which has no file whose size could bound it.
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

constexpr char kCall[] = "SaveSharded";

// A rank's message before it writes: the number of the files (rank 0's number is used) and its items.
struct Introduction {
  int number = 0;
  ShardedMetadata has;
};

std::string Pack(const Introduction& introduction) {
  return absl::StrCat(introduction.number, "\n", EncodeMetadata(introduction.has));
}

absl::StatusOr<Introduction> Unpack(absl::string_view packed) {
  Introduction introduction;
  const size_t end = packed.find('\n');
  if (end == absl::string_view::npos || !absl::SimpleAtoi(packed.substr(0, end), &introduction.number))
    return absl::InternalError("an introduction without a number");
  LOCKSTEP_ASSIGN_OR_RETURN(introduction.has, DecodeMetadata(packed.substr(end + 1), kNoLimit));
  return introduction;
}

// A rank's message after it has written: where its parts are, and the hashes of those that others have too.
struct Report {
  std::vector<uint32_t> hashes;
  ShardedMetadata written;
};

std::string Pack(const Report& report) {
  return absl::StrCat(
      report.hashes.size(), "\n",
      absl::string_view(reinterpret_cast<const char*>(report.hashes.data()), report.hashes.size() * sizeof(uint32_t)),
      EncodeMetadata(report.written));
}

absl::StatusOr<Report> UnpackReport(absl::string_view packed) {
  Report report;
  size_t count = 0;
  const size_t end = packed.find('\n');
  if (end == absl::string_view::npos || !absl::SimpleAtoi(packed.substr(0, end), &count) ||
      count > packed.size() / sizeof(uint32_t))
    return absl::InternalError("a report without its hashes");
  packed.remove_prefix(end + 1);
  const size_t bytes = count * sizeof(uint32_t);
  if (bytes > packed.size()) return absl::InternalError("a report without its hashes");
  report.hashes.resize(count);
  if (bytes > 0) std::memcpy(report.hashes.data(), packed.data(), bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(report.written, DecodeMetadata(packed.substr(bytes), kNoLimit));
  return report;
}

class Saver {
 public:
  Saver(file::FileSystem& system, const std::string& directory, const ShardedStateDict& state,
        comm::ProcessGroup* group, const SaveOptions& options)
      : system_(system),
        directory_(directory),
        state_(state),
        group_(group),
        rank_(group ? group->rank() : 0),
        options_(options) {}

  absl::Status Run();

 private:
  absl::StatusOr<std::string> Introduce() const;
  absl::StatusOr<std::string> Write(const std::vector<std::string>& introductions);
  absl::Status WriteItems(bool tensors, ShardedMetadata& written);
  absl::StatusOr<Value> Part(const ShardedItem& item, const Box& box) const;
  const at::Tensor* FindShard(const ShardedTensor& tensor, const Box& box) const;
  absl::StatusOr<std::vector<uint32_t>> Hashes() const;
  absl::StatusOr<std::vector<Report>> Compare(const std::vector<std::string>& written) const;
  absl::Status Finish(const std::vector<Report>& reports);
  void PlaceParts(const ShardedMetadata& written);

  file::FileSystem& system_;
  const std::string& directory_;
  const ShardedStateDict& state_;
  comm::ProcessGroup* const group_;
  const int rank_;
  const SaveOptions& options_;
  absl::flat_hash_map<std::string, const ShardedEntry*> entries_;
  absl::Status unfit_;  // the error if the ranks' parts do not fit together; the same on every rank
  SavePlan plan_;
  std::unique_ptr<ChunkWriter> writer_;
};

absl::StatusOr<std::string> Saver::Introduce() const {
  Introduction introduction;
  LOCKSTEP_ASSIGN_OR_RETURN(introduction.has, Describe(state_));
  if (rank_ == 0) {
    if (const auto failed = MakeFolders(directory_, /*lasting=*/options_.sync)) {
      return absl::ErrnoToStatus(failed->error, absl::StrCat("make the directory ", failed->folder));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(introduction.number, ChooseNumber(directory_));
  }
  return Pack(introduction);
}

const at::Tensor* Saver::FindShard(const ShardedTensor& tensor, const Box& box) const {
  for (const Shard& shard : tensor.shards) {
    // For a tensor without elements, any part represents the whole.
    if (shard.tensor.numel() == 0 ? ElementsOf(box.sizes) == 0 : shard.offsets == box.offsets) return &shard.tensor;
  }
  return nullptr;
}

absl::StatusOr<Value> Saver::Part(const ShardedItem& item, const Box& box) const {
  const ShardedEntry& entry = *entries_.at(item.name);
  if (const Value* value = std::get_if<Value>(&entry.value)) return *value;
  const at::Tensor* part = FindShard(std::get<ShardedTensor>(entry.value), box);
  if (!part) return absl::InternalError(absl::StrCat("its part ", ToString(box), " is not here"));
  return Value(part->reshape(box.sizes));
}

// Plain values come before the tensors, as in DCP.
absl::Status Saver::WriteItems(bool tensors, ShardedMetadata& written) {
  for (size_t i = 0; i < plan_.whole.items.size(); ++i) {
    const ShardedItem& item = plan_.whole.items[i];
    if (item.is_tensor != tensors) continue;
    ShardedItem mine = item;
    mine.chunks.clear();
    for (size_t j = 0; j < item.chunks.size(); ++j) {
      if (plan_.writers[i][j] != rank_) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(const Value part, Part(item, item.chunks[j].box));
      absl::StatusOr<ShardedChunk> chunk = writer_->Write(part, item.chunks[j].box);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(chunk.status(), absl::StrCat("item \"", item.name, "\"")));
      mine.chunks.push_back(*std::move(chunk));
    }
    if (!mine.chunks.empty()) written.items.push_back(std::move(mine));
  }
  return absl::OkStatus();
}

// Returns the hashes of this rank's parts that other ranks have too, in the plan's order.
absl::StatusOr<std::vector<uint32_t>> Saver::Hashes() const {
  std::vector<uint32_t> hashes;
  for (size_t i = 0; i < plan_.holders.size(); ++i) {
    for (size_t j = 0; j < plan_.holders[i].size(); ++j) {
      const std::vector<int>& holders = plan_.holders[i][j];
      if (holders.size() < 2 || !std::binary_search(holders.begin(), holders.end(), rank_)) continue;
      const ShardedItem& item = plan_.whole.items[i];
      LOCKSTEP_ASSIGN_OR_RETURN(const Value part, Part(item, item.chunks[j].box));
      const absl::StatusOr<uint32_t> hash = HashOf(part);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(hash.status(), absl::StrCat("item \"", item.name, "\"")));
      hashes.push_back(*hash);
    }
  }
  return hashes;
}

absl::StatusOr<std::string> Saver::Write(const std::vector<std::string>& introductions) {
  std::vector<ShardedMetadata> ranks;
  int number = 0;
  for (size_t rank = 0; rank < introductions.size(); ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(Introduction introduction, Unpack(introductions[rank]));
    if (rank == 0) number = introduction.number;
    ranks.push_back(std::move(introduction.has));
  }
  absl::StatusOr<SavePlan> plan = MakeSavePlan(ranks);
  unfit_ = plan.status();
  LOCKSTEP_RETURN_IF_ERROR(unfit_);
  plan_ = *std::move(plan);
  for (const ShardedEntry& entry : state_) entries_.emplace(entry.name(), &entry);
  writer_ = std::make_unique<ChunkWriter>(directory_, NameOfFile(rank_, number), options_.sync, system_);
  Report report;
  LOCKSTEP_RETURN_IF_ERROR(WriteItems(false, report.written));
  LOCKSTEP_RETURN_IF_ERROR(WriteItems(true, report.written));
  LOCKSTEP_ASSIGN_OR_RETURN(report.hashes, Hashes());
  LOCKSTEP_RETURN_IF_ERROR(writer_->Commit());
  return Pack(report);
}

// Records the positions at which a rank has written its parts.
void Saver::PlaceParts(const ShardedMetadata& written) {
  absl::flat_hash_map<std::string, ShardedItem*> whole;
  for (ShardedItem& item : plan_.whole.items) whole.emplace(item.name, &item);
  for (const ShardedItem& item : written.items) {
    for (const ShardedChunk& chunk : item.chunks) {
      for (ShardedChunk& planned : whole.at(item.name)->chunks) {
        if (planned.box == chunk.box) planned = chunk;
      }
    }
  }
}

absl::Status Saver::Finish(const std::vector<Report>& reports) {
  if (rank_ != 0) return absl::OkStatus();
  for (const Report& report : reports) PlaceParts(report.written);
  LOCKSTEP_RETURN_IF_ERROR(CheckFiles(directory_, plan_.whole));
  const std::string pickle = EncodeMetadata(plan_.whole);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<file::AtomicFile> file,
      file::AtomicFile::Create(absl::StrCat(directory_, "/", kMetadataFile), options_.sync, system_));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(pickle.data(), pickle.size()));
  LOCKSTEP_RETURN_IF_ERROR(file->Commit());
  RemoveOthers(directory_, plan_.whole);
  return absl::OkStatus();
}

// The result of f(), or its exception as a status.
template <typename F>
absl::StatusOr<std::string> Caught(F f) {
  absl::StatusOr<std::string> result;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { result = f(); }));
  return result;
}

// The reports of all ranks, if they agree; the same on every rank.
absl::StatusOr<std::vector<Report>> Saver::Compare(const std::vector<std::string>& written) const {
  std::vector<Report> reports;
  std::vector<std::vector<uint32_t>> hashes;
  for (const std::string& one : written) {
    LOCKSTEP_ASSIGN_OR_RETURN(Report report, UnpackReport(one));
    hashes.push_back(report.hashes);
    reports.push_back(std::move(report));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSameContents(plan_, hashes));
  return reports;
}

absl::Status Saver::Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> introductions,
                            comm::GatherAgreed(group_, kCall, Caught([&] { return Introduce(); })));
  const auto written = comm::GatherAgreed(group_, kCall, Caught([&] { return Write(introductions); }));
  const absl::StatusOr<std::vector<Report>> reports = written.ok() ? Compare(*written) : written.status();
  if (!reports.ok()) {
    // If the group failed, another rank may still have finished the checkpoint.
    const bool agreed = !group_ || group_->failure().ok();
    if (agreed && writer_) writer_->Remove();
    return unfit_.ok() ? reports.status() : unfit_;
  }
  absl::Status finished;
  finished.Update(TorchStatus("", [&] { finished = Finish(*reports); }));
  return comm::Agree(group_, kCall, Annotate(finished, kMetadataFile));
}

}  // namespace

absl::Status SaveShardedOver(file::FileSystem& system, const std::string& directory, const ShardedStateDict& state,
                             comm::ProcessGroup* group, const SaveOptions& options) {
  return Annotate(Saver(system, directory, state, group, options).Run(), directory);
}

}  // namespace lockstep::checkpoint::internal
