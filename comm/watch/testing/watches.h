// Helpers for tests of the watch: stores without LibTorch, and options.

#ifndef LOCKSTEP_COMM_WATCH_TESTING_WATCHES_H_
#define LOCKSTEP_COMM_WATCH_TESTING_WATCHES_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm::testing {

// A store for threads.
class MapStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value);
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline);

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

// A store for processes: one file for each key, in an existing folder.
class FolderStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Set(const std::string& key, const std::string& value);
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline);

 private:
  std::string folder_;
};

// Where the ranks of a test are, and which of them the others connect to.
struct Layout {
  bool one_host = true;
  int hub = 0;
};
inline constexpr Layout kLayouts[] = {{true, 0}, {false, 0}, {true, 1}, {false, 1}};
// For the names of parametrized tests.
std::string NameOf(const Layout& layout);

// This process as each of `size` ranks. With `one_host` false the last rank has another network namespace, so that the
// watch uses TCP.
std::vector<RankIdentity> ThreadRanks(int size, bool one_host = true);

// Options for a watch over `store`, which is borrowed. The deadline is `patience` from now, and the host is 127.0.0.1.
template <typename Store>
WatchOptions OptionsOver(Store* store, int rank, std::vector<RankIdentity> ranks,
                         absl::Duration patience = absl::Seconds(20)) {
  WatchOptions options;
  options.rank = rank;
  options.ranks = std::move(ranks);
  options.host = "127.0.0.1";
  options.set = [store](const std::string& key, const std::string& value) { return store->Set(key, value); };
  options.get = [store](const std::string& key, absl::Time deadline) { return store->Get(key, deadline); };
  options.deadline = absl::Now() + patience;
  return options;
}

// Connected watches of threads of this process, one for each rank. `change` may change its options. Ends the process if
// they do not connect.
std::vector<std::unique_ptr<Watch>> ConnectThreads(
    int size, Layout layout = {}, const std::function<void(int rank, WatchOptions* options)>& change = nullptr);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_WATCH_TESTING_WATCHES_H_
