// libcurl, loaded when etcd is asked for. A program that links it loads 30 more libraries, which adds 8 ms to each
// start (median of 60 starts of an empty program, Debian 12).

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_CURL_LIBRARY_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_CURL_LIBRARY_H_

#include <curl/curl.h>

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::launch::etcd {

// The functions of libcurl under their names without `curl_`, from an open library.
struct CurlLibrary {
  explicit CurlLibrary(void* open_library) : library(open_library) {}

  void* const library;
  std::string missing;  // why the first function that the library lacks is missing; "" if it has all

  decltype(&curl_global_init) global_init = Find("curl_global_init");
  decltype(&curl_easy_init) easy_init = Find("curl_easy_init");
  decltype(&curl_easy_setopt) easy_setopt = Find("curl_easy_setopt");
  decltype(&curl_easy_getinfo) easy_getinfo = Find("curl_easy_getinfo");
  decltype(&curl_easy_strerror) easy_strerror = Find("curl_easy_strerror");
  decltype(&curl_easy_cleanup) easy_cleanup = Find("curl_easy_cleanup");
  decltype(&curl_multi_init) multi_init = Find("curl_multi_init");
  decltype(&curl_multi_add_handle) multi_add_handle = Find("curl_multi_add_handle");
  decltype(&curl_multi_remove_handle) multi_remove_handle = Find("curl_multi_remove_handle");
  decltype(&curl_multi_perform) multi_perform = Find("curl_multi_perform");
  decltype(&curl_multi_poll) multi_poll = Find("curl_multi_poll");
  decltype(&curl_multi_info_read) multi_info_read = Find("curl_multi_info_read");
  decltype(&curl_multi_strerror) multi_strerror = Find("curl_multi_strerror");
  decltype(&curl_multi_cleanup) multi_cleanup = Find("curl_multi_cleanup");
  decltype(&curl_slist_append) slist_append = Find("curl_slist_append");
  decltype(&curl_slist_free_all) slist_free_all = Find("curl_slist_free_all");

 private:
  struct Function {
    void* address;
    template <typename F>
    operator F*() const {  // NOLINT: to the type of the function
      return reinterpret_cast<F*>(address);
    }
  };
  Function Find(const char* name);
};

// Loads the library at the first call. It stays loaded. NotFound: libcurl.so.4 is missing or older than 7.66; the
// message names Debian's package.
absl::StatusOr<const CurlLibrary*> LoadCurl();

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_CURL_LIBRARY_H_
