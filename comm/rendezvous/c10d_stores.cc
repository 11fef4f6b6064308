#include "lockstep/comm/rendezvous/c10d_stores.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/sigpipe.h"
#include "lockstep/comm/rendezvous/bounded_call.h"
#include "lockstep/comm/rendezvous/listen_socket.h"

namespace lockstep::comm::internal {
namespace {

// LibTorch's stores count connection time in whole seconds, 0 meaning for ever.
std::chrono::milliseconds StoreTimeout(absl::Duration timeout) {
  return absl::ToChronoMilliseconds(std::max(timeout, absl::Seconds(1)));
}

// TCPStore's constructor, in a thread that is left behind if what accepts the connection never speaks.
absl::StatusOr<C10dStore> MakeTcpStore(const std::string& host, const c10d::TCPStoreOptions& options,
                                       absl::Duration timeout) {
  const auto made = std::make_shared<C10dStore>();
  // LibTorch gives up by itself at its timeout, with a reason; only where it hangs is that overrun.
  const absl::Time deadline = absl::Now() + std::max(timeout, absl::Seconds(1)) + absl::Milliseconds(500);
  LOCKSTEP_RETURN_IF_ERROR(CallByDeadline(
      [made, host, options] {
        *made = c10::make_intrusive<c10d::TCPStore>(host, options);
        return absl::OkStatus();
      },
      deadline));
  return *made;
}

// What LibTorch's message leaves open: whether the host or only the port is the trouble.
absl::Status Explain(const absl::Status& error, const Address& address, absl::Duration timeout) {
  const absl::Status host = CheckHost(address.host);
  const std::string after = absl::StrCat(" after ", absl::FormatDuration(timeout));
  if (!host.ok()) return absl::Status(host.code(), absl::StrCat(host.message(), after));
  if (error.code() != absl::StatusCode::kDeadlineExceeded) return error;
  return absl::DeadlineExceededError(absl::StrCat("nobody has answered", after, ": ", error.message()));
}

absl::Status CheckPath(const std::string& path) {
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("file store \"", path, "\": expected an absolute path"));
  }
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("file store ", path, ": this is a folder"));
  }
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("file store ", path, ": folder ", folder, " does not exist"));
}

}  // namespace

std::string ToString(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", address.host, "]:", address.port) : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<C10dStore> ServeTcpStore(const Address& address, int listen_fd, absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = StoreTimeout(timeout);
  options.masterListenFd = listen_fd;
  options.port = address.port;
  auto store = MakeTcpStore(address.host, options, timeout);
  if (!store.ok()) return Annotate(store.status(), absl::StrCat("serving the store at ", ToString(address)));
  return store;
}

absl::StatusOr<C10dStore> ConnectTcpStore(const Address& address, int count_among, absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.port = address.port;
  if (count_among > 0) options.numWorkers = count_among;
  options.waitWorkers = count_among > 0;
  options.timeout = StoreTimeout(timeout);
  auto store = MakeTcpStore(address.host, options, timeout);
  if (store.ok()) return store;
  return Annotate(Explain(store.status(), address, timeout),
                  absl::StrCat("connecting to the store at ", ToString(address)));
}

absl::StatusOr<C10dStore> OpenFileStore(const std::string& path, int users, absl::Duration timeout) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPath(path));
  return TorchStatusOr(absl::StrCat("opening file store ", path), [&]() -> C10dStore {
    auto store = c10::make_intrusive<c10d::FileStore>(path, users);
    store->setTimeout(StoreTimeout(timeout));
    return store;
  });
}

std::string Describe(const C10dStore& store) {
  c10d::Store* inner = store.get();
  C10dStore held;
  while (auto* prefix = dynamic_cast<c10d::PrefixStore*>(inner)) {
    held = prefix->getUnderlyingStore();
    inner = held.get();
  }
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(inner)) {
    return absl::StrCat("store at ", ToString({tcp->getHost(), tcp->getPort()}));
  }
  if (const auto* file = dynamic_cast<c10d::FileStore*>(inner)) return absl::StrCat("file store ", file->getPath());
  return "in-process store";
}

}  // namespace lockstep::comm::internal
