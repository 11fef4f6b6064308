// HTTP requests that run at the same time on one thread.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_HTTP_CLIENT_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_HTTP_CLIENT_H_

#include <stdint.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/rendezvous/etcd/curl_library.h"

namespace lockstep::launch::etcd {

struct HttpOptions {
  // Files in PEM format, for URLs with https. Empty: the system's authorities; no certificate of this client.
  std::string ca, cert, key;
  absl::Duration connect_timeout = absl::Seconds(2);
};

struct HttpRequest {
  std::string url, body;
  std::vector<std::string> headers;                   // "Name: value"
  absl::Duration timeout = absl::InfiniteDuration();  // of the whole request
};

struct HttpReply {
  int64_t code = 0;  // 200 and so on
  std::string body;
};

// Thread-compatible. Environment variables that name proxies have no effect.
class HttpClient {
 public:
  using OnReply = std::function<void(absl::StatusOr<HttpReply>)>;
  using OnLine = std::function<void(absl::string_view line)>;

  static absl::StatusOr<std::unique_ptr<HttpClient>> Create(const HttpOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Starts a POST. `on_reply` is called once, by Poll(), with what came back, or with Unavailable; FailedPrecondition:
  // a certificate of either side does not fit. With `on_line`, each line of the reply goes there as soon as it is
  // complete, and `on_reply` gets the rest after the last line break.
  void Post(HttpRequest request, OnReply on_reply, OnLine on_line = nullptr);

  // Ends all requests. Their callbacks are not called any more.
  void CancelAll();

  // Waits until `wake_fd` is readable, a callback has been called, or `timeout` has passed. Callbacks may call every
  // other function. Internal: libcurl cannot wait.
  absl::Status Poll(int wake_fd, absl::Duration timeout);

 private:
  struct Transfer;

  HttpClient(const CurlLibrary& curl, const HttpOptions& options, CURLM* multi);
  void SetOptions(Transfer* transfer);
  void SetTlsOptions(Transfer* transfer);
  bool Deliver();
  bool DeliverLines(int64_t id);
  void Finish(CURL* easy, CURLcode code);
  void Remove(Transfer* transfer);

  const CurlLibrary& curl_;
  const HttpOptions options_;
  CURLM* const multi_;
  int64_t next_id_ = 0;
  std::map<int64_t, std::unique_ptr<Transfer>> transfers_;  // by id: libcurl may use the address of a handle again
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_HTTP_CLIENT_H_
