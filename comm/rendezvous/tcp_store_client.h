#ifndef LOCKSTEP_COMM_RENDEZVOUS_TCP_STORE_CLIENT_H_
#define LOCKSTEP_COMM_RENDEZVOUS_TCP_STORE_CLIENT_H_

#include <c10/util/intrusive_ptr.h>

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
#include "lockstep/comm/rendezvous/tcp_connection.h"

namespace lockstep::comm::internal {

// A client of a c10d::TCPStore's server, which may be in another process and a Python program's. It speaks PyTorch
// 2.11's protocol, and differs from LibTorch's own client in two ways:
// - Every call ends. A server that does not answer is an error after the store's timeout, 2 s at least, and one whose
//   host has vanished after 20 s. LibTorch's client waits without a limit.
// - It logs nothing. When the server goes away, LibTorch's client writes a C++ stack of 20 lines for each call.
//
// Calls throw StatusError: Unavailable once the connection has ended, DeadlineExceeded for keys that are not set in
// time and for a server that does not answer, which ends the connection. All methods may be called from any thread; a
// call waits for other threads' calls, for the timeout at most. There are no queues and no listKeys().
class TcpStoreClient final : public c10d::Store {
 public:
  // Keeps trying until somebody answers, and meanwhile tells `waiting` again and again why nobody has. NotFound if the
  // host is unknown at the end, DeadlineExceeded if nobody answers in time, Unavailable if what answers is not a store.
  // `timeout`, 1 s at least, is for connecting and for each later call.
  using Waiting = std::function<void(absl::string_view why)>;
  static absl::StatusOr<c10::intrusive_ptr<TcpStoreClient>> Connect(
      const std::string& host, int port, absl::Duration timeout, const Waiting& waiting = [](absl::string_view) {});

  // Made by Connect().
  TcpStoreClient(std::string host, int port, std::unique_ptr<TcpConnection> connection, absl::Duration timeout);

  const std::string& host() const { return host_; }
  int port() const { return port_; }

  // Adds one to the workers that a c10d::TCPStore with `waitWorkers` waits for.
  void CountAsWorker();

  c10::intrusive_ptr<c10d::Store> clone() override;
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
  std::timed_mutex mutex_;                     // held for a whole exchange; guards what follows
  std::unique_ptr<TcpConnection> connection_;  // null once it has ended
  absl::Status end_;                           // why
  bool wait_is_cancelled_ = false;             // and the server's answer to that is still to be read
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_TCP_STORE_CLIENT_H_
