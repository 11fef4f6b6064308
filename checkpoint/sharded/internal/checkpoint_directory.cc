#include "lockstep/checkpoint/sharded/internal/checkpoint_directory.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::internal {
namespace {

// n of "__r_n.distcp", or -1 for another name.
int NumberOf(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "__") || !absl::ConsumeSuffix(&name, ".distcp")) return -1;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '_');
  int rank = -1, number = -1;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &rank) || !absl::SimpleAtoi(parts[1], &number)) return -1;
  return rank < 0 || NameOfFile(rank, number) != absl::StrCat("__", name, ".distcp") ? -1 : number;
}

// AtomicFile's temporary for a rank's file. After all ranks have written their files its writer is dead. The next save
// of that rank would remove it, but that rank may no longer exist.
bool IsTemporary(absl::string_view name) {
  const size_t end = name.find(".lockstep-");
  return end != absl::string_view::npos && absl::ConsumePrefix(&name, ".") && NumberOf(name.substr(0, end - 1)) >= 0;
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()), &closedir);
  if (!entries) return absl::ErrnoToStatus(errno, "open the directory");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries.get())) names.emplace_back(entry->d_name);
  return names;
}

// In order, so that a message names the first.
absl::btree_set<std::string> FilesOf(const ShardedMetadata& metadata) {
  absl::btree_set<std::string> files;
  for (const ShardedItem& item : metadata.items) {
    for (const ShardedChunk& chunk : item.chunks) files.insert(chunk.file);
  }
  return files;
}

template <typename Names>
int LowestFree(const Names& names) {
  absl::flat_hash_set<int> taken;
  for (const std::string& name : names) taken.insert(NumberOf(name));
  int number = 0;
  while (taken.contains(number)) ++number;
  return number;
}

}  // namespace

std::string NameOfFile(int rank, int number) { return absl::StrCat("__", rank, "_", number, ".distcp"); }

absl::StatusOr<int> ChooseNumber(const std::string& directory) {
  const absl::StatusOr<ShardedMetadata> old = ReadShardedMetadata(directory);
  if (old.ok()) return LowestFree(FilesOf(*old));
  if (absl::IsNotFound(old.status())) return 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  return LowestFree(names);
}

absl::Status CheckFiles(const std::string& directory, const ShardedMetadata& metadata) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  const absl::flat_hash_set<std::string> here(names.begin(), names.end());
  for (const std::string& file : FilesOf(metadata)) {
    if (here.contains(file)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(file, " was written, but is not in rank 0's directory; do all ranks give the same one?"));
  }
  return absl::OkStatus();
}

void RemoveOthers(const std::string& directory, const ShardedMetadata& metadata) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (!names.ok()) return;
  const absl::btree_set<std::string> kept = FilesOf(metadata);
  for (const std::string& name : *names) {
    const bool other = NumberOf(name) >= 0 && !kept.contains(name);
    if (other || IsTemporary(name)) unlink(absl::StrCat(directory, "/", name).c_str());
  }
}

}  // namespace lockstep::checkpoint::internal
