// libcurl, loaded when etcd is asked for. A program that links it loads 30 more libraries, which adds 8 ms to each start
// (median of 60 starts of an empty program, Debian 12).

#ifndef LOCKSTEP_TOOLS_LAUNCH_ETCD_CURL_LIBRARY_H_
#define LOCKSTEP_TOOLS_LAUNCH_ETCD_CURL_LIBRARY_H_

#include <curl/curl.h>

#include "absl/status/statusor.h"

namespace lockstep::launch::etcd {

// The functions of libcurl under their names without `curl_`.
struct CurlLibrary {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_multi_init) multi_init = nullptr;
  decltype(&curl_multi_add_handle) multi_add_handle = nullptr;
  decltype(&curl_multi_remove_handle) multi_remove_handle = nullptr;
  decltype(&curl_multi_perform) multi_perform = nullptr;
  decltype(&curl_multi_poll) multi_poll = nullptr;
  decltype(&curl_multi_info_read) multi_info_read = nullptr;
  decltype(&curl_multi_strerror) multi_strerror = nullptr;
  decltype(&curl_multi_cleanup) multi_cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  decltype(&curl_url) url = nullptr;
  decltype(&curl_url_set) url_set = nullptr;
  decltype(&curl_url_get) url_get = nullptr;
  decltype(&curl_url_strerror) url_strerror = nullptr;
  decltype(&curl_url_cleanup) url_cleanup = nullptr;
  decltype(&curl_free) free = nullptr;
};

// Loads the library at the first call. It stays loaded. NotFound: libcurl.so.4 is missing or older than 7.80; the
// message names Debian's package.
absl::StatusOr<const CurlLibrary*> LoadCurl();

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_TOOLS_LAUNCH_ETCD_CURL_LIBRARY_H_
