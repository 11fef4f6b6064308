#include "lockstep/tools/launch/etcd/curl_library.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch::etcd {
namespace {

constexpr char kLibrary[] = "libcurl.so.4";

absl::Status Missing(absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("etcd: ", kLibrary, " is needed, 7.80 or newer, and cannot be loaded: ", why,
                                          ". Install it (Debian: apt-get install libcurl4)"));
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindTransfers(void* library, CurlLibrary* curl) {
  return Find(library, "curl_global_init", &curl->global_init) && Find(library, "curl_easy_init", &curl->easy_init) &&
         Find(library, "curl_easy_setopt", &curl->easy_setopt) &&
         Find(library, "curl_easy_getinfo", &curl->easy_getinfo) &&
         Find(library, "curl_easy_strerror", &curl->easy_strerror) &&
         Find(library, "curl_easy_cleanup", &curl->easy_cleanup) &&
         Find(library, "curl_multi_init", &curl->multi_init) &&
         Find(library, "curl_multi_add_handle", &curl->multi_add_handle) &&
         Find(library, "curl_multi_remove_handle", &curl->multi_remove_handle) &&
         Find(library, "curl_multi_perform", &curl->multi_perform) &&
         Find(library, "curl_multi_poll", &curl->multi_poll) &&
         Find(library, "curl_multi_info_read", &curl->multi_info_read) &&
         Find(library, "curl_multi_strerror", &curl->multi_strerror) &&
         Find(library, "curl_multi_cleanup", &curl->multi_cleanup);
}

bool FindListsAndUrls(void* library, CurlLibrary* curl) {
  return Find(library, "curl_slist_append", &curl->slist_append) &&
         Find(library, "curl_slist_free_all", &curl->slist_free_all) && Find(library, "curl_url", &curl->url) &&
         Find(library, "curl_url_set", &curl->url_set) && Find(library, "curl_url_get", &curl->url_get) &&
         Find(library, "curl_url_strerror", &curl->url_strerror) &&
         Find(library, "curl_url_cleanup", &curl->url_cleanup) && Find(library, "curl_free", &curl->free);
}

absl::StatusOr<const CurlLibrary*> Load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return Missing(dlerror());
  static CurlLibrary curl;
  if (!FindTransfers(library, &curl) || !FindListsAndUrls(library, &curl)) return Missing(dlerror());
  const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) return Missing(curl.easy_strerror(code));
  return &curl;
}

}  // namespace

absl::StatusOr<const CurlLibrary*> LoadCurl() {
  static const auto* const curl = new absl::StatusOr<const CurlLibrary*>(Load());
  return *curl;
}

}  // namespace lockstep::launch::etcd
