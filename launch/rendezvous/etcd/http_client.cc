#include "lockstep/launch/rendezvous/etcd/http_client.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/folder.h"

namespace lockstep::launch::etcd {
namespace {

constexpr size_t kMostReplyBytes = size_t{1} << 30;

std::set<int> OpenDescriptors() {
  std::set<int> fds;
  for (const std::string& name : NamesIn("/proc/self/fd")) {
    int fd;
    const bool is_open = absl::SimpleAtoi(name, &fd) && fcntl(fd, F_GETFD) >= 0;  // NamesIn() had one too
    if (is_open) fds.insert(fd);
  }
  return fds;
}

// libcurl opens a pair of sockets for each multi handle without close-on-exec.
CURLM* NewMulti(const CurlLibrary& curl) {
  const std::set<int> before = OpenDescriptors();
  CURLM* const multi = curl.multi_init();
  for (const int fd : OpenDescriptors()) {
    if (before.count(fd) == 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return multi;
}

curl_socket_t OpenSocket(void*, curlsocktype, curl_sockaddr* address) {
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// A peer that is gone without a word is noticed after twice the time for connecting.
int SetKeepAlive(void* options, curl_socket_t fd, curlsocktype) {
  const auto& http = *static_cast<const HttpOptions*>(options);
  const int on = 1, probes = 2, seconds = std::max<int>(1, absl::ToInt64Seconds(http.connect_timeout) / 2);
  const unsigned milliseconds = static_cast<unsigned>(absl::ToInt64Milliseconds(2 * http.connect_timeout));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  return CURL_SOCKOPT_OK;
}

// Certificates that do not fit do so again.
absl::StatusCode StatusCodeOf(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// libcurl must not be called from here, so callbacks wait until Deliver().
size_t Receive(char* bytes, size_t size, size_t count, void* received) {
  auto& text = *static_cast<std::string*>(received);
  if (text.size() + size * count > kMostReplyBytes) return 0;
  text.append(bytes, size * count);
  return size * count;
}

}  // namespace

struct HttpClient::Transfer {
  HttpRequest request;
  OnReply on_reply;
  OnLine on_line;
  int64_t id = 0;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  std::string received;
  char error[CURL_ERROR_SIZE] = "";
};

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Create(const HttpOptions& options) {
  const absl::StatusOr<const CurlLibrary*> curl = LoadCurl();
  if (!curl.ok()) return curl.status();
  CURLM* const multi = NewMulti(**curl);
  if (!multi) return absl::ResourceExhaustedError("etcd: libcurl has no memory or descriptors for its connections");
  return std::unique_ptr<HttpClient>(new HttpClient(**curl, options, multi));
}

HttpClient::HttpClient(const CurlLibrary& curl, const HttpOptions& options, CURLM* multi)
    : curl_(curl), options_(options), multi_(multi) {}

HttpClient::~HttpClient() {
  CancelAll();
  curl_.multi_cleanup(multi_);
}

void HttpClient::Post(HttpRequest request, OnReply on_reply, OnLine on_line) {
  auto transfer = std::make_unique<Transfer>();
  transfer->request = std::move(request);
  transfer->on_reply = std::move(on_reply);
  transfer->on_line = std::move(on_line);
  transfer->id = next_id_++;
  transfer->easy = curl_.easy_init();
  SetOptions(transfer.get());
  SetTlsOptions(transfer.get());
  curl_.multi_add_handle(multi_, transfer->easy);
  transfers_[transfer->id] = std::move(transfer);
}

void HttpClient::SetOptions(Transfer* transfer) {
  const HttpRequest& request = transfer->request;
  for (const std::string& header : request.headers) {
    transfer->headers = curl_.slist_append(transfer->headers, header.c_str());
  }
  // Without this one libcurl waits for "100 Continue" before a long body.
  transfer->headers = curl_.slist_append(transfer->headers, "Expect:");
  const auto set = [this, transfer](CURLoption option, auto value) {
    curl_.easy_setopt(transfer->easy, option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_POSTFIELDS, request.body.c_str());
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(CURLOPT_HTTPHEADER, transfer->headers);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(options_.connect_timeout)));
  if (request.timeout != absl::InfiniteDuration()) {
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(request.timeout)));
  }
  set(CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  set(CURLOPT_SOCKOPTFUNCTION, &SetKeepAlive);
  set(CURLOPT_SOCKOPTDATA, static_cast<const void*>(&options_));
  set(CURLOPT_WRITEFUNCTION, &Receive);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer->received));
  set(CURLOPT_PRIVATE, static_cast<void*>(transfer));
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(transfer->error));
#if LIBCURL_VERSION_NUM >= 0x075700
  // A look-up of a name that takes long does not delay the end of this client.
  set(CURLOPT_QUICK_EXIT, 1L);
#endif
}

void HttpClient::SetTlsOptions(Transfer* transfer) {
  const auto set = [this, transfer](CURLoption option, const std::string& path) {
    if (!path.empty()) curl_.easy_setopt(transfer->easy, option, path.c_str());
  };
  set(CURLOPT_CAINFO, options_.ca);
  set(CURLOPT_SSLCERT, options_.cert);
  set(CURLOPT_SSLKEY, options_.key);
}

void HttpClient::Remove(Transfer* transfer) {
  curl_.multi_remove_handle(multi_, transfer->easy);
  curl_.easy_cleanup(transfer->easy);
  curl_.slist_free_all(transfer->headers);
}

void HttpClient::CancelAll() {
  for (const auto& [id, transfer] : transfers_) Remove(transfer.get());
  transfers_.clear();
}

absl::Status HttpClient::Poll(int wake_fd, absl::Duration timeout) {
  int running = 0;
  curl_.multi_perform(multi_, &running);
  if (Deliver()) return absl::OkStatus();
  curl_waitfd wake = {wake_fd, CURL_WAIT_POLLIN, 0};
  const int milliseconds = PollTimeout(std::min(timeout, absl::Hours(1)));
  const CURLMcode code = curl_.multi_poll(multi_, &wake, 1, milliseconds, nullptr);
  if (code != CURLM_OK) return absl::InternalError(absl::StrCat("etcd: libcurl: ", curl_.multi_strerror(code)));
  curl_.multi_perform(multi_, &running);
  Deliver();
  return absl::OkStatus();
}

// Calls callbacks. They may end transfers and start others. Returns whether one was called.
bool HttpClient::Deliver() {
  std::vector<int64_t> streams;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer->on_line) streams.push_back(id);
  }
  bool delivered = false;
  for (const int64_t id : streams) delivered |= DeliverLines(id);
  int left = 0;
  while (const CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Finish(message->easy_handle, message->data.result);
    delivered = true;
  }
  return delivered;
}

// A callback may end the transfer, so the lines are taken out before. Returns whether there were some.
bool HttpClient::DeliverLines(int64_t id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return false;
  std::string& received = found->second->received;
  const size_t end = received.rfind('\n');
  if (end == std::string::npos) return false;
  const std::string lines = received.substr(0, end + 1);
  received.erase(0, end + 1);
  const OnLine on_line = found->second->on_line;
  for (size_t start = 0; start < lines.size() && transfers_.count(id) != 0;) {
    const size_t line_end = lines.find('\n', start);
    on_line(absl::string_view(lines).substr(start, line_end - start));
    start = line_end + 1;
  }
  return true;
}

void HttpClient::Finish(CURL* easy, CURLcode code) {
  char* private_data = nullptr;
  curl_.easy_getinfo(easy, CURLINFO_PRIVATE, &private_data);
  const int64_t id = reinterpret_cast<Transfer*>(private_data)->id;
  const auto found = transfers_.find(id);
  if (found->second->on_line && DeliverLines(id) && transfers_.count(id) == 0) return;
  const std::unique_ptr<Transfer> transfer = std::move(found->second);
  transfers_.erase(found);
  long http_code = 0;
  curl_.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http_code);
  long os_error = 0;
  curl_.easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_error);
  Remove(transfer.get());
  if (code == CURLE_COULDNT_CONNECT && os_error != 0) {
    transfer->on_reply(absl::UnavailableError(strerror(static_cast<int>(os_error))));
    return;
  }
  if (code != CURLE_OK) {
    transfer->on_reply(
        absl::Status(StatusCodeOf(code), *transfer->error ? transfer->error : curl_.easy_strerror(code)));
    return;
  }
  HttpReply reply;
  reply.code = http_code;
  reply.body = std::move(transfer->received);
  transfer->on_reply(std::move(reply));
}

}  // namespace lockstep::launch::etcd
