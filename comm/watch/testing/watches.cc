#include "lockstep/comm/watch/testing/watches.h"

#include <stdio.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lockstep::comm::testing {
namespace {

absl::StatusOr<std::string> Poll(const std::string& key, absl::Time deadline,
                                 const std::function<std::optional<std::string>()>& look) {
  while (true) {
    if (std::optional<std::string> value = look()) return *value;
    if (absl::Now() >= deadline) return absl::DeadlineExceededError(absl::StrCat("no key ", key));
    absl::SleepFor(absl::Milliseconds(2));
  }
}

}  // namespace

absl::Status MapStore::Set(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MapStore::Get(const std::string& key, absl::Time deadline) {
  return Poll(key, deadline, [&]() -> std::optional<std::string> {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  });
}

absl::Status FolderStore::Set(const std::string& key, const std::string& value) {
  const std::string path = absl::StrCat(folder_, "/", key);
  const std::string unfinished = path + ".new";
  std::ofstream(unfinished) << value;
  if (rename(unfinished.c_str(), path.c_str()) != 0) return absl::UnavailableError(path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> FolderStore::Get(const std::string& key, absl::Time deadline) {
  return Poll(key, deadline, [&]() -> std::optional<std::string> {
    std::ifstream file(absl::StrCat(folder_, "/", key));
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  });
}

std::string NameOf(const Layout& layout) {
  return absl::StrCat(layout.one_host ? "OneHost" : "SeveralHosts", "Hub", layout.hub);
}

std::vector<RankIdentity> ThreadRanks(int size, bool one_host) {
  std::vector<RankIdentity> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(IdentityOfThisProcess(rank));
  if (!one_host) ranks.back().network_namespace = "net:[another]";
  return ranks;
}

std::vector<std::unique_ptr<Watch>> ConnectThreads(int size, Layout layout,
                                                   const std::function<void(int, WatchOptions*)>& change) {
  MapStore store;
  std::vector<std::unique_ptr<Watch>> watches(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      WatchOptions options = OptionsOver(&store, rank, ThreadRanks(size, layout.one_host));
      options.hub = layout.hub;
      if (change) change(rank, &options);
      watches[rank] = Watch::Create(std::move(options)).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return watches;
}

}  // namespace lockstep::comm::testing
