// A key-value store for small values between processes: over TCP, in a file, or within one process.

#ifndef LOCKSTEP_COMM_STORE_STORE_H_
#define LOCKSTEP_COMM_STORE_STORE_H_

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
  // The maximum time for opening (at least 1 s), and for each call without a deadline argument.
  absl::Duration timeout = absl::Minutes(5);
  int rank = -1;  // the rank to name in errors; -1: none
};

// A handle on one of PyTorch's stores: over TCP, in a file or in this process. Copies share the store. It is destroyed
// with the last copy.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const comm::Store store, comm::Store::ConnectTcp("node0", 29600, {}));
//   LOCKSTEP_RETURN_IF_ERROR(store.Set("weights", path));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string seed, store.Get("seed", absl::Now() + absl::Seconds(10)));
//
// Keys and values are any bytes. The value of a key used with Add() is its decimal digits. Over TCP a key has at most 8
// KiB and a value at most 8 MiB. All methods may be called from any thread. No call waits for another thread's Get or
// Wait.
//
// Errors name the rank, the store with its address, the call and the key:
//   NotFound          Get: the key does not exist
//   DeadlineExceeded  a key was not set by the deadline, or the store did not answer by its timeout. After the latter,
//                     every later call through this handle and its copies fails at once with Unavailable
//   Unavailable       the process that served the store has ended
// If a TCP store has just ended, Set and Delete may still return OK; the next call fails.
class Store {
 public:
  // Serves a store at `port` (0: any free port), and is a client of it too. It listens only on the interface of `host`:
  // 127.0.0.1 is reachable from this machine only. It ends with the last copy of the handle. FailedPrecondition: the
  // port is in use. NotFound: the host is unknown.
  static absl::StatusOr<Store> ServeTcp(const std::string& host, int port, const StoreOptions& options);

  // Connects to a store, and retries until it answers or the timeout passes. DeadlineExceeded: nothing answers.
  // NotFound: the host is still unknown at the end. Unavailable: the server is not a store.
  static absl::StatusOr<Store> ConnectTcp(const std::string& host, int port, const StoreOptions& options);

  // Opens a file shared by `users` handles, in processes of one host or of hosts with a common file system. The first
  // Set creates it, and the last user removes it. NotFound: its folder does not exist.
  static absl::StatusOr<Store> OpenFile(const std::string& path, int users, const StoreOptions& options);

  // A store for the threads of one process.
  static Store InProcess(const StoreOptions& options);

  // Wraps an existing store, such as ProcessGroup::store(). Shares its ownership.
  static Store FromC10d(c10::intrusive_ptr<c10d::Store> store, const StoreOptions& options);

  // Returns this store with "`prefix`/" before every key.
  Store WithPrefix(absl::string_view prefix) const;

  // Over TCP it does not wait for the server, as LibTorch's client does not. So another client sees the key soon after.
  absl::Status Set(absl::string_view key, absl::string_view value) const;
  absl::StatusOr<std::string> Get(absl::string_view key) const;                       // does not wait
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) const;  // waits for the key
  // Adds to the number under the key (0 if the key does not exist) and returns the sum.
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t amount) const;
  // Blocks until every key exists.
  absl::Status Wait(const std::vector<std::string>& keys, absl::Time deadline) const;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) const;  // whether every key exists
  // Returns whether the key existed. If two clients delete a key of a file store at once, both may get true.
  absl::StatusOr<bool> Delete(absl::string_view key) const;
  // Sets `desired` if the value is `expected` ("": if the key does not exist), and returns the value afterwards.
  absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                         absl::string_view desired) const;

  const c10::intrusive_ptr<c10d::Store>& c10d() const;
  int port() const;  // of a TCP store; -1 for other stores

 private:
  struct Impl;
  explicit Store(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_STORE_H_
