#include "lockstep/comm/store/internal/tcp_store_client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/silent_hosts.h"
#include "lockstep/comm/store/internal/tcp_store_protocol.h"

namespace lockstep::comm::internal {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr absl::Duration kLeastTimeout = absl::Seconds(1);
constexpr absl::Duration kLeastAnswerTime = absl::Seconds(2);
constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// The time for one attempt. A host that starts later does not answer earlier messages.
constexpr absl::Duration kAttempt = absl::Seconds(10);
// The time for one attempt if there may be an interruption. The system sends the first message again after 1 s.
constexpr absl::Duration kShortAttempt = absl::Milliseconds(1500);
// How long a host may be silent that is known to be up.
constexpr absl::Duration kMostSilence = absl::Seconds(15);
constexpr absl::Duration kWaitingInterval = absl::Milliseconds(100);
constexpr absl::Duration kInterruptionInterval = absl::Milliseconds(20);
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a value; LibTorch's server takes 8 MiB

// Its keys begin with a slash, except for the count of workers.
constexpr char kWorkersKey[] = "init/";
std::string Name(const std::string& key) { return absl::StrCat("/", key); }

// A request's bytes.
class Request {
 public:
  explicit Request(QueryType type) { Number(type); }

  template <typename T>
  Request& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  template <typename Container>
  Request& Text(const Container& text) {
    Number<uint64_t>(text.size());
    bytes_.append(text.begin(), text.end());
    return *this;
  }
  Request& Names(const std::vector<std::string>& keys) {
    Number<uint64_t>(keys.size());
    for (const std::string& key : keys) Text(Name(key));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string Quoted(const std::vector<std::string>& keys) {
  return absl::StrJoin(keys, ", ",
                       [](std::string* out, const std::string& key) { absl::StrAppend(out, "\"", key, "\""); });
}

absl::Duration Jittered(absl::Duration pause) {
  static thread_local std::minstd_rand random{std::random_device()()};
  return pause * std::uniform_real_distribution<double>(0.5, 1)(random);
}

// Sleeps for `pause`, or until `interruption`, which may be null, has an error.
absl::Status Sleep(absl::Duration pause, const std::function<absl::Status()>& interruption) {
  const absl::Time end = absl::Now() + pause;
  for (absl::Duration left = pause; left > absl::ZeroDuration(); left = end - absl::Now()) {
    if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
    absl::SleepFor(interruption ? std::min(left, kInterruptionInterval) : left);
  }
  return absl::OkStatus();
}

// Sends a client's first message, and checks whether a store answers.
absl::Status Greet(TcpConnection& connection, absl::Time deadline, const TcpStoreClient::Waiting& waiting,
                   const std::function<absl::Status()>& interruption) {
  const uint32_t nonce = std::random_device()();
  Request hello(QueryType::kValidate);
  hello.Number(kValidationMagicNumber).Number(QueryType::kPing).Number(nonce);
  LOCKSTEP_RETURN_IF_ERROR(connection.Send(hello.bytes(), deadline));
  // A socket that a launcher has bound accepts connections before rank 0 can answer.
  const absl::Duration interval = interruption ? kInterruptionInterval : kWaitingInterval;
  while (absl::Now() < deadline && !connection.AwaitInput(std::min(deadline, absl::Now() + interval))) {
    if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
    waiting("no answer");
  }
  uint32_t answer = 0;
  LOCKSTEP_RETURN_IF_ERROR(connection.Receive(&answer, sizeof(answer), deadline));
  if (answer == nonce) return absl::OkStatus();
  return absl::FailedPreconditionError("what answers is not a store");
}

// `silent_since`: the begin of the first attempt since which the host has not even refused.
absl::StatusOr<std::unique_ptr<TcpConnection>> Attempt(const std::string& host, int port, absl::Time deadline,
                                                       const TcpStoreClient::Waiting& waiting,
                                                       const std::function<absl::Status()>& interruption,
                                                       absl::Time* silent_since) {
  const absl::Duration limit = interruption ? kShortAttempt : kAttempt;
  auto connection = TcpConnection::Connect(host, port, deadline, limit);
  const bool is_silent = absl::IsDeadlineExceeded(connection.status());
  *silent_since = is_silent ? std::min(*silent_since, absl::Now() - limit) : absl::InfiniteFuture();
  // The server may not listen yet, so this error is retried.
  if (absl::IsUnavailable(connection.status())) return absl::DeadlineExceededError(connection.status().message());
  LOCKSTEP_RETURN_IF_ERROR(connection.status());
  LOCKSTEP_RETURN_IF_ERROR(Greet(**connection, deadline, waiting, interruption));
  return connection;
}

}  // namespace

// One request with its answers. The requests of other threads wait.
class TcpStoreClient::Exchange {
 public:
  explicit Exchange(TcpStoreClient& client)
      : client_(client),
        deadline_(absl::Now() + client.AnswerTime()),
        lock_(client.mutex_, absl::ToChronoTime(deadline_)) {
    if (!lock_.owns_lock()) {
      ThrowIfError(absl::DeadlineExceededError("timed out behind another thread's call to the store"));
    }
    ThrowIfError(client_.end_);
    while (client_.wait_is_cancelled_) {
      client_.wait_is_cancelled_ = Receive<WaitResponseType>() != WaitResponseType::kWaitCanceled;
    }
  }

  void Send(const Request& request) {
    ++client_.requests_sent_;
    Check(client_.connection_->Send(request.bytes(), deadline_));
  }

  template <typename T>
  T Receive() {
    T value;
    Check(client_.connection_->Receive(&value, sizeof(value), deadline_));
    return value;
  }

  Bytes ReceiveBytes() {
    const auto size = Receive<uint64_t>();
    if (size > kMostBytes) Check(absl::DataLossError(absl::StrCat("the store sent a value of ", size, " bytes")));
    Bytes bytes(size);
    Check(client_.connection_->Receive(bytes.data(), size, deadline_));
    return bytes;
  }

  // Blocks until the server reports that every key exists.
  void Await(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
    Send(Request(QueryType::kWait).Names(keys));
    if (!client_.connection_->AwaitInput(absl::Now() + absl::FromChrono(timeout))) {
      Send(Request(QueryType::kCancelWait));
      client_.wait_is_cancelled_ = true;
      ThrowIfError(absl::DeadlineExceededError(absl::StrCat(
          "timed out after ", absl::FormatDuration(absl::FromChrono(timeout)), ": not set: ", Quoted(keys))));
    }
    deadline_ = absl::Now() + client_.AnswerTime();
    Receive<WaitResponseType>();
  }

 private:
  // After an error it is unknown to which call the next bytes belong.
  void Check(const absl::Status& status) {
    if (status.ok()) return;
    client_.connection_ = nullptr;
    const bool silent = absl::IsDeadlineExceeded(status);
    client_.end_ = absl::UnavailableError(silent ? "the store stopped answering before" : status.message());
    if (!silent) ThrowIfError(status);
    ThrowIfError(absl::DeadlineExceededError(
        "the store does not answer (the process that serves it is stopped, or the network is cut)"));
  }

  TcpStoreClient& client_;
  absl::Time deadline_;  // for answers that need no waiting on the server
  std::unique_lock<std::timed_mutex> lock_;
};

absl::StatusOr<c10::intrusive_ptr<TcpStoreClient>> TcpStoreClient::Connect(
    const std::string& host, int port, absl::Duration timeout, const Waiting& waiting,
    const std::function<absl::Status()>& interruption, bool host_is_up) {
  timeout = std::max(timeout, kLeastTimeout);
  const absl::Time deadline = absl::Now() + timeout;
  absl::Duration pause = kFirstPause;
  absl::Time silent_since = absl::InfiniteFuture();
  while (true) {
    if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
    auto connection = Attempt(host, port, deadline, waiting, interruption, &silent_since);
    if (connection.ok()) return c10::make_intrusive<TcpStoreClient>(host, port, *std::move(connection), timeout);
    if (absl::IsResourceExhausted(connection.status())) return connection.status();
    if (absl::IsFailedPrecondition(connection.status())) return absl::UnavailableError(connection.status().message());
    if (host_is_up && absl::Now() - silent_since >= kMostSilence) {
      RecordSilentHost(host);
      return absl::UnavailableError(absl::StrCat("its host ", kDoesNotAnswer));
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= kFirstPause) return connection.status();
    waiting(connection.status().message());
    // At most half of the remaining time, so that a long pause does not end the wait well before the deadline.
    LOCKSTEP_RETURN_IF_ERROR(Sleep(std::min(Jittered(pause), left / 2), interruption));
    pause = std::min(2 * pause, kLongestPause);
  }
}

TcpStoreClient::TcpStoreClient(std::string host, int port, std::unique_ptr<TcpConnection> connection,
                               absl::Duration timeout)
    : Store(absl::ToChronoMilliseconds(timeout)),
      host_(std::move(host)),
      port_(port),
      connection_(std::move(connection)) {}

absl::Duration TcpStoreClient::AnswerTime() const { return std::max(absl::FromChrono(timeout_), kLeastAnswerTime); }

void TcpStoreClient::CountAsWorker() {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kAdd).Text(absl::string_view(kWorkersKey)).Number<int64_t>(1));
  exchange.Receive<int64_t>();
}

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
c10::intrusive_ptr<c10d::Store> TcpStoreClient::clone() {
  auto made = Connect(host_, port_, absl::FromChrono(timeout_));
  ThrowIfError(made.status());
  return *std::move(made);
}
#endif

void TcpStoreClient::set(const std::string& key, const Bytes& value) {
  Exchange(*this).Send(Request(QueryType::kSet).Text(Name(key)).Text(value));
}

Bytes TcpStoreClient::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kCompareSet).Text(Name(key)).Text(expected).Text(desired));
  return exchange.ReceiveBytes();
}

Bytes TcpStoreClient::get(const std::string& key) {
  Exchange exchange(*this);
  exchange.Await({key}, timeout_);
  exchange.Send(Request(QueryType::kGet).Text(Name(key)));
  return exchange.ReceiveBytes();
}

int64_t TcpStoreClient::add(const std::string& key, int64_t amount) {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kAdd).Text(Name(key)).Number(amount));
  return exchange.Receive<int64_t>();
}

bool TcpStoreClient::deleteKey(const std::string& key) {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kDeleteKey).Text(Name(key)));
  return exchange.Receive<int64_t>() == 1;
}

bool TcpStoreClient::check(const std::vector<std::string>& keys) {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kCheck).Names(keys));
  return exchange.Receive<CheckResponseType>() == CheckResponseType::kReady;
}

int64_t TcpStoreClient::getNumKeys() {
  Exchange exchange(*this);
  exchange.Send(Request(QueryType::kGetNumKeys));
  return exchange.Receive<int64_t>();
}

void TcpStoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void TcpStoreClient::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  Exchange(*this).Await(keys, timeout);
}

void TcpStoreClient::append(const std::string& key, const Bytes& value) {
  Exchange(*this).Send(Request(QueryType::kAppend).Text(Name(key)).Text(value));
}

std::vector<Bytes> TcpStoreClient::multiGet(const std::vector<std::string>& keys) {
  Exchange exchange(*this);
  exchange.Await(keys, timeout_);
  exchange.Send(Request(QueryType::kMultiGet).Names(keys));
  std::vector<Bytes> values;
  for (size_t i = 0; i < keys.size(); ++i) values.push_back(exchange.ReceiveBytes());
  return values;
}

void TcpStoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  if (keys.size() != values.size()) {
    ThrowIfError(
        absl::InvalidArgumentError(absl::StrCat("multiSet: ", keys.size(), " keys, but ", values.size(), " values")));
  }
  Request request(QueryType::kMultiSet);
  request.Number<int64_t>(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) request.Text(Name(keys[i])).Text(values[i]);
  Exchange(*this).Send(request);
}

}  // namespace lockstep::comm::internal
