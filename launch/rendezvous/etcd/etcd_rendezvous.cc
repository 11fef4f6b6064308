#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"
#include "lockstep/launch/rendezvous/etcd/etcd_session.h"
#include "lockstep/launch/rendezvous/shared_view.h"

namespace lockstep::launch::etcd {
namespace {

constexpr absl::Duration kEndLeaseLimit = absl::Seconds(5);
constexpr absl::Duration kEndLeasePause = absl::Milliseconds(50);

// The requests of the caller's thread that the thread of a rendezvous has not taken yet.
struct Orders {
  std::optional<std::string> post, decision;
  bool leave = false, stop = false;
};

class Implementation : public EtcdRendezvous {
 public:
  Implementation(const EtcdOptions& options, std::unique_ptr<EtcdClient> client, std::unique_ptr<SharedView> view,
                 Event wake)
      : view_(std::move(view)), wake_(std::move(wake)), session_(options, std::move(client), view_.get()) {}
  ~Implementation() override { Stop(); }

  absl::Status Start() {
    LOCKSTEP_ASSIGN_OR_RETURN(thread_, StartThread("the thread of the rendezvous at etcd", [this] { Run(); }));
    return absl::OkStatus();
  }

  void Post(absl::string_view text) override {
    Order([text](Orders* orders) { orders->post = std::string(text); });
  }
  void Decide(absl::string_view text) override {
    Order([text](Orders* orders) { orders->decision = std::string(text); });
  }
  int fd() const override { return view_->fd(); }
  View Look() override { return view_->Look(); }
  void Leave(absl::Duration timeout) override;

 private:
  template <typename Change>
  void Order(const Change& change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change(&orders_);
    wake_.Set();
  }
  void Run();
  Orders TakeOrders();
  void Stop();

  const std::unique_ptr<SharedView> view_;
  const Event wake_;
  EtcdSession session_;  // of the thread
  std::mutex mutex_;
  std::condition_variable left_changed_;
  bool left_ = false;  // guarded by mutex_, as is `orders_`
  Orders orders_;
  std::thread thread_;
};

void Implementation::Leave(absl::Duration timeout) {
  Order([](Orders* orders) { orders->leave = true; });
  {
    std::unique_lock<std::mutex> lock(mutex_);
    left_changed_.wait_for(lock, absl::ToChronoMilliseconds(std::min(timeout, absl::Hours(24))),
                           [this] { return left_; });
  }
  Stop();
}

void Implementation::Stop() {
  Order([](Orders* orders) { orders->stop = true; });
  if (thread_.joinable()) thread_.join();
}

Orders Implementation::TakeOrders() {
  const std::lock_guard<std::mutex> lock(mutex_);
  wake_.Clear();
  Orders orders = std::exchange(orders_, {});
  orders_.stop = orders.stop;
  return orders;
}

void Implementation::Run() {
  // Signals are for the threads of the launcher, and a connection that ends must not cause SIGPIPE.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!session_.left()) {
    Orders orders = TakeOrders();
    if (orders.stop) return;
    if (orders.post) session_.Post(*std::move(orders.post));
    if (orders.decision) session_.Decide(*std::move(orders.decision));
    if (orders.leave) session_.Leave();
    session_.Step();
    if (!session_.left()) session_.Wait(wake_.fd());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  left_changed_.notify_all();
}

absl::Status CheckFile(absl::string_view what, const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("etcd: the ", what, " ", Printable(path), " cannot be read: ", strerror(errno)));
}

absl::Status CheckTls(const EtcdOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFile("file of certificate authorities", options.ca));
  LOCKSTEP_RETURN_IF_ERROR(CheckFile("certificate", options.cert));
  LOCKSTEP_RETURN_IF_ERROR(CheckFile("key of the certificate", options.key));
  if (options.cert.empty() != options.key.empty()) {
    return absl::InvalidArgumentError("etcd: a certificate and its key are given together, or neither");
  }
  return absl::OkStatus();
}

absl::Status Check(const EtcdOptions& options) {
  if (options.job_id.empty()) return absl::InvalidArgumentError("etcd: the job has no id");
  if (options.agent_id.empty()) return absl::InvalidArgumentError("etcd: the agent has no id");
  if (options.ttl < absl::Seconds(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("etcd: the time to live is ", absl::FormatDuration(options.ttl), ", expected at least 1s"));
  }
  if (options.timeout <= options.ttl || options.timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat("etcd: the timeout is ", absl::FormatDuration(options.timeout),
                                                   ", expected more than the time to live, ",
                                                   absl::FormatDuration(options.ttl), ", and at most 24h"));
  }
  return CheckTls(options);
}

// A member that does not answer costs half the time to live at most, so that the next one can keep the lease alive.
EtcdClientOptions ClientOptions(const EtcdOptions& options) {
  EtcdClientOptions client;
  client.endpoints = options.endpoints;
  client.ca = options.ca;
  client.cert = options.cert;
  client.key = options.key;
  client.user = options.user;
  client.password = options.password;
  client.connect_timeout = options.ttl / 2;
  client.keep_alive_timeout = options.ttl / 2;
  client.request_timeout = std::max(options.ttl, absl::Seconds(5));
  return client;
}

// Returns OK when a server has answered that the lease is not there any more, and otherwise why not.
absl::Status RevokeLease(EtcdClient* client, int64_t lease, absl::Time deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Event never, Event::Create("launch: no eventfd"));
  absl::Status status;
  std::optional<absl::Status> answer;
  client->RevokeLease(lease, [&](const absl::StatusOr<int64_t>& reply) { answer = reply.status(); });
  while (!answer && status.ok() && MonotonicTime() < deadline) {
    status = client->Poll(never.fd(), deadline - MonotonicTime());
  }
  client->CancelAll();
  if (answer) return absl::IsNotFound(*answer) ? absl::OkStatus() : *answer;
  if (!status.ok()) return status;
  return absl::UnavailableError(absl::StrCat("etcd ", client->endpoint(), ": there was no answer"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> EtcdRendezvous::Join(const EtcdOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client, EtcdClient::Create(ClientOptions(options)));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<SharedView> view, SharedView::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Event wake, Event::Create("launch: no eventfd"));
  auto rendezvous = std::make_unique<Implementation>(options, std::move(client), std::move(view), std::move(wake));
  LOCKSTEP_RETURN_IF_ERROR(rendezvous->Start());
  return std::unique_ptr<Rendezvous>(std::move(rendezvous));
}

// Each server gets the same share of the time, as one of them may be stopped.
absl::Status EtcdRendezvous::EndLease(const EtcdOptions& options, int64_t lease) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdClient> client, EtcdClient::Create(ClientOptions(options)));
  const absl::Duration limit = std::min(options.ttl, kEndLeaseLimit);
  const absl::Duration share = limit / static_cast<int64_t>(options.endpoints.size());
  const absl::Time deadline = MonotonicTime() + limit;
  for (;;) {
    const absl::Status status = RevokeLease(client.get(), lease, std::min(deadline, MonotonicTime() + share));
    if (status.ok() || MonotonicTime() + kEndLeasePause >= deadline) return status;
    client->NextEndpoint();
    absl::SleepFor(kEndLeasePause);
  }
}

}  // namespace lockstep::launch::etcd
