#include "lockstep/tools/launch/etcd/endpoint.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch::etcd {
namespace {

absl::Status Malformed(absl::string_view endpoint, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("etcd endpoint \"", Printable(endpoint), "\": ", why,
                                                 "; expected host:port, http://host:port or https://host:port"));
}

std::string Part(const CurlLibrary& curl, CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl.url_get(url, part, &text, 0) != CURLUE_OK) return "";
  const std::string copy = text;
  curl.free(text);
  return copy;
}

}  // namespace

absl::StatusOr<std::string> EndpointUrl(const CurlLibrary& curl, absl::string_view endpoint, bool is_secure) {
  const bool has_scheme = endpoint.find("://") != absl::string_view::npos;
  const std::string text = absl::StrCat(has_scheme ? "" : is_secure ? "https://" : "http://", endpoint);
  const std::unique_ptr<CURLU, decltype(curl.url_cleanup)> url(curl.url(), curl.url_cleanup);
  const CURLUcode code = curl.url_set(url.get(), CURLUPART_URL, text.c_str(), 0);
  if (code != CURLUE_OK) return Malformed(endpoint, curl.url_strerror(code));
  const std::string scheme = Part(curl, url.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return Malformed(endpoint, absl::StrCat("the scheme is ", scheme));
  const std::string path = Part(curl, url.get(), CURLUPART_PATH);
  if (!path.empty() && path != "/") return Malformed(endpoint, absl::StrCat("it has the path ", Printable(path)));
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    if (!Part(curl, url.get(), part).empty()) return Malformed(endpoint, "it has a user, a query or a fragment");
  }
  const std::string port = Part(curl, url.get(), CURLUPART_PORT);
  std::string host = Part(curl, url.get(), CURLUPART_HOST);
  const std::string zone = Part(curl, url.get(), CURLUPART_ZONEID);  // which the host does not have
  if (!zone.empty()) host.insert(host.size() - 1, absl::StrCat("%25", zone));
  return absl::StrCat(scheme, "://", host, ":", port.empty() ? "2379" : port);
}

}  // namespace lockstep::launch::etcd
