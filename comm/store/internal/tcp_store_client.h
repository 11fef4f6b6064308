#ifndef LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_CLIENT_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_CLIENT_H_

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/comm/store/internal/tcp_connection.h"

namespace lockstep::comm::internal {

// A client of a c10d::TCPStore's server, which may be in another process, including a Python program. It speaks PyTorch
// 2.11's protocol, and differs from LibTorch's own client in two ways:
// - Every call ends. If the server does not answer, the call fails after the store's timeout (at least 2 s), or after
//   20 s if its host has vanished. LibTorch's client waits without limit.
// - It logs nothing. Once the server has ended, LibTorch's client writes a C++ stack of 20 lines for each call.
//
// Calls throw StatusError. Unavailable: the connection has ended. DeadlineExceeded: keys are not set in time, or the
// server does not answer, which ends the connection. All methods may be called from any thread. A call waits for
// calls of other threads, for at most the timeout. Queues and listKeys() are not supported.
class TcpStoreClient final : public c10d::Store {
 public:
  // Retries until the server answers, and meanwhile calls `waiting` repeatedly with the reason. `timeout`, at least 1
  // s, limits connecting and each later call. NotFound: the host is still unknown at the end. DeadlineExceeded: nothing
  // answers in time. Unavailable: the server is not a store. If `interruption` is not null, it is asked about every 20
  // ms until the server answers, or every 1.5 s while its host does not, and its first error is returned. `host_is_up`:
  // if the host does not answer for 15 s, the error is Unavailable.
  using Waiting = std::function<void(absl::string_view why)>;
  static absl::StatusOr<c10::intrusive_ptr<TcpStoreClient>> Connect(
      const std::string& host, int port, absl::Duration timeout, const Waiting& waiting = [](absl::string_view) {},
      const std::function<absl::Status()>& interruption = nullptr, bool host_is_up = false);

  // Use Connect().
  TcpStoreClient(std::string host, int port, std::unique_ptr<TcpConnection> connection, absl::Duration timeout);

  const std::string& host() const { return host_; }
  int port() const { return port_; }

  // The number of requests sent so far, by all threads. Keys that get() and multiGet() wait for are one more request.
  int64_t requests_sent() const { return requests_sent_; }

  // Adds one to the workers that a c10d::TCPStore with `waitWorkers` waits for.
  void CountAsWorker();

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
  c10::intrusive_ptr<c10d::Store> clone() override;
#endif
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  bool hasExtendedApi() const override { return true; }
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) override;

 private:
  class Exchange;
  absl::Duration AnswerTime() const;

  const std::string host_;
  const int port_;
  std::atomic<int64_t> requests_sent_{0};
  std::timed_mutex mutex_;                     // held for a whole exchange; guards the members below
  std::unique_ptr<TcpConnection> connection_;  // null once it has ended
  absl::Status end_;                           // reason of the end
  bool wait_is_cancelled_ = false;             // the server's answer to the cancellation has not been read yet
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_CLIENT_H_
