// Small facts between processes: a key-value store over TCP, in a file, or within one process.

#ifndef LOCKSTEP_COMM_STORE_H_
#define LOCKSTEP_COMM_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace c10d {
class Store;
}

namespace lockstep::comm {

struct StoreOptions {
  // The longest that opening, and any call without a deadline of its own, may take; 1 s at least for opening.
  absl::Duration timeout = absl::Minutes(5);
  int rank = -1;  // whose errors these are; -1: they name no rank
};

// A handle on a store of PyTorch's kinds: over TCP, in a file or in this process. Copies share it; it lives as long as
// the last.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const comm::Store store, comm::Store::ConnectTcp("node0", 29600, {}));
//   LOCKSTEP_RETURN_IF_ERROR(store.Set("weights", path));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string seed, store.Get("seed", absl::Now() + absl::Seconds(10)));
//
// Keys and values are any bytes; a value that Add() counts in is its decimal digits. Over TCP a key has at most 8 KiB
// and a value at most 8 MiB. All methods may be called from any thread; no call waits for another thread's Get or Wait.
//
// Errors name the rank, the store with its address, the call and the key:
//   NotFound          Get of a key that is not there
//   DeadlineExceeded  a key that was not set by the deadline; a store that did not answer by its timeout, after which
//                     every later call through this handle and its copies fails at once with Unavailable
//   Unavailable       a store that went away with the process that served it
// Set and Delete of a TCP store that just went away may still return OK: the next call knows.
class Store {
 public:
  // Serves a store at `port` (0: any free one) on the interface that `host` names and no other, and is a client of it:
  // 127.0.0.1 is for this machine alone. It goes with the last copy of the handle. FailedPrecondition for a port in
  // use, NotFound for an unknown host.
  static absl::StatusOr<Store> ServeTcp(const std::string& host, int port, const StoreOptions& options);

  // A client; keeps trying until somebody answers. DeadlineExceeded if nobody does, NotFound if the host is unknown to
  // the end, Unavailable if what answers is no store.
  static absl::StatusOr<Store> ConnectTcp(const std::string& host, int port, const StoreOptions& options);

  // A file that `users` handles share, in processes of one host or of hosts with a common file system; it is made at
  // the first Set, and the last user to leave removes it. NotFound if its folder does not exist.
  static absl::StatusOr<Store> OpenFile(const std::string& path, int users, const StoreOptions& options);

  // For the threads of one process.
  static Store InProcess(const StoreOptions& options);

  // Another's store, such as ProcessGroup::store(). Shares ownership.
  static Store FromC10d(c10::intrusive_ptr<c10d::Store> store, const StoreOptions& options);

  // The same store with "`prefix`/" before every key.
  Store WithPrefix(absl::string_view prefix) const;

  absl::Status Set(absl::string_view key, absl::string_view value) const;
  absl::StatusOr<std::string> Get(absl::string_view key) const;                       // as it is now
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) const;  // waits for it
  // Adds to the number under the key, 0 if there is none, and returns the sum.
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t amount) const;
  // Blocks until every key is there.
  absl::Status Wait(const std::vector<std::string>& keys, absl::Time deadline) const;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) const;  // whether every key is there
  // Whether it was there; of two that delete it at once in a file store, both may hear that it was.
  absl::StatusOr<bool> Delete(absl::string_view key) const;
  // Sets `desired` where the value is `expected` ("": where there is none), and returns what the value then is.
  absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                         absl::string_view desired) const;

  const c10::intrusive_ptr<c10d::Store>& c10d() const;
  int port() const;  // of a TCP store; -1 for others

 private:
  struct Impl;
  explicit Store(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_H_
