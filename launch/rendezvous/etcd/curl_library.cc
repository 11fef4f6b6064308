#include "lockstep/launch/rendezvous/etcd/curl_library.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/static_program.h"

namespace lockstep::launch::etcd {
namespace {

constexpr char kLibrary[] = "libcurl.so.4";

absl::Status Missing(absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("etcd: ", kLibrary, " is needed, 7.66 or newer, and cannot be loaded: ", why,
                                          ". Install it (Debian: apt-get install libcurl4)"));
}

absl::StatusOr<const CurlLibrary*> Load() {
  if (IsStaticProgram()) {
    return absl::NotFoundError(absl::StrCat(
        "etcd: this program is linked statically and cannot load ", kLibrary,
        ". Use a launcher that you compile (//launch, or CMake's component launch_program), or --rdzv-backend=tcp"));
  }
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return Missing(dlerror());
  static const CurlLibrary curl(library);
  if (!curl.missing.empty()) return Missing(curl.missing);
  const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) return Missing(curl.easy_strerror(code));
  return &curl;
}

}  // namespace

CurlLibrary::Function CurlLibrary::Find(const char* name) {
  void* const address = dlsym(library, name);
  if (!address && missing.empty()) missing = dlerror();
  return {address};
}

absl::StatusOr<const CurlLibrary*> LoadCurl() {
  static const auto* const curl = new absl::StatusOr<const CurlLibrary*>(Load());
  return *curl;
}

}  // namespace lockstep::launch::etcd
