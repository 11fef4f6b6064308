// A client of etcd 3.4 or newer, through the JSON gateway that every member has. See etcd's API reference for the
// meaning of revisions, leases and transactions.
//
//   EtcdClientOptions options;
//   options.endpoints = {"http://10.0.0.1:2379", "http://10.0.0.2:2379"};
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto client, EtcdClient::Create(options));
//   client->Range("/key", "", [](absl::StatusOr<RangeReply> reply) { ... });
//   while (!done) LOCKSTEP_RETURN_IF_ERROR(client->Poll(wake_fd, absl::Seconds(1)));

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/rendezvous/etcd/http_client.h"

namespace lockstep::launch::etcd {

struct EtcdClientOptions : HttpOptions {
  // "http://host:port" or "https://host:port"; an IPv6 address in brackets.
  std::vector<std::string> endpoints;
  std::string user, password;  // empty user: no authentication
  absl::Duration keep_alive_timeout = absl::Seconds(2);
  absl::Duration request_timeout = absl::Seconds(10);  // of every other request but a watch
};

struct KeyValue {
  std::string key, value;
  int64_t create_revision = 0, mod_revision = 0;
  int64_t lease = 0;  // 0: none
};

struct RangeReply {
  int64_t revision = 0;
  std::vector<KeyValue> kvs;
};

// Holds if every key in the range has the revision. A key that does not exist has revision 0.
struct Compare {
  enum class Target { kCreateRevision, kModRevision };
  Target target = Target::kModRevision;
  std::string key;
  int64_t revision = 0;
  std::string range_end;  // "": `key` alone
};

struct Operation {
  enum class Kind { kPut, kDelete, kRange };
  Kind kind = Kind::kRange;
  std::string key;
  std::string value;  // of a put, as is the lease
  int64_t lease = 0;
};

struct Transaction {
  std::vector<Compare> compares;
  std::vector<Operation> success, failure;
};

struct TransactionReply {
  bool succeeded = false;
  int64_t revision = 0;
  std::vector<KeyValue> kvs;  // what the ranges found
};

struct WatchEvent {
  bool is_delete = false;
  KeyValue kv;  // of a delete: the key, and the revision of the delete
};

// The first reply has no events: from then on the watch runs.
struct WatchReply {
  int64_t revision = 0;
  std::vector<WatchEvent> events;
};

// Thread-compatible. Functions start a request and return; Poll() calls the callbacks, which may call every other
// function. All requests go to one endpoint until NextEndpoint() is called.
//
// An error of etcd has etcd's code and message and names the endpoint. Unavailable: the endpoint did not answer, or
// what answered is not etcd. FailedPrecondition: a certificate does not fit. PermissionDenied: the user or the password
// is wrong, too. A token of etcd that has expired is replaced without an error.
class EtcdClient {
 public:
  template <typename Reply>
  using On = std::function<void(absl::StatusOr<Reply>)>;

  // InvalidArgument: there is no endpoint. NotFound: libcurl is missing.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(const EtcdClientOptions& options);
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // The keys in [key, range_end); `key` alone if `range_end` is empty.
  void Range(absl::string_view key, absl::string_view range_end, On<RangeReply> on_reply);
  void Execute(const Transaction& transaction, On<TransactionReply> on_reply);

  // The reply is the lease's id.
  void GrantLease(int64_t seconds, On<int64_t> on_reply);
  // The reply is the lease's new time to live in seconds, 0 if there is no such lease.
  void KeepLeaseAlive(int64_t lease, On<int64_t> on_reply);
  // Deletes the lease's keys. The reply is the revision. NotFound: there is no such lease.
  void RevokeLease(int64_t lease, On<int64_t> on_reply);

  // All changes of [key, range_end) from `start_revision` on, in their order. After an error the watch has ended.
  // OutOfRange: the revision has been compacted. The member ends the watch if it has lost the cluster's leader.
  void Watch(absl::string_view key, absl::string_view range_end, int64_t start_revision,
             const On<WatchReply>& on_reply);

  // Ends all requests and watches. Their callbacks are not called any more.
  void CancelAll();

  // The next requests go to the endpoint after this one.
  void NextEndpoint() { endpoint_ = (endpoint_ + 1) % options_.endpoints.size(); }
  void UseEndpoint(size_t index) { endpoint_ = index % options_.endpoints.size(); }
  const std::vector<std::string>& endpoints() const { return options_.endpoints; }
  const std::string& endpoint() const { return options_.endpoints[endpoint_]; }

  // Waits until `wake_fd` is readable, a callback has been called, or `timeout` has passed.
  absl::Status Poll(int wake_fd, absl::Duration timeout) { return http_->Poll(wake_fd, timeout); }

 private:
  using OnBody = On<std::string>;
  struct Call {
    std::string path, body;
    OnBody on_body;
    HttpClient::OnLine on_line;  // null unless the reply is a stream
    absl::Duration timeout = absl::InfiniteDuration();
    bool retried = false;
  };

  EtcdClient(const EtcdClientOptions& options, std::unique_ptr<HttpClient> http);
  void Send(std::string path, std::string body, absl::Duration timeout, OnBody on_body);
  void Submit(Call call);
  void Start(Call call);
  void OnReply(Call call, const std::string& endpoint, absl::StatusOr<HttpReply> reply);
  void Authenticate();
  void OnToken(absl::StatusOr<HttpReply> reply, const std::string& endpoint);
  bool TokenIsStale(const absl::Status& status);

  const EtcdClientOptions options_;
  std::unique_ptr<HttpClient> http_;
  size_t endpoint_ = 0;
  std::string token_;
  bool needs_token_;
  bool authenticating_ = false;
  int64_t cancellations_ = 0;
  std::vector<Call> waiting_;  // for the token
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
