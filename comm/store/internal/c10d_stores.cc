#include "lockstep/comm/store/internal/c10d_stores.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/sigpipe.h"
#include "lockstep/comm/secret/sealed_store.h"
#include "lockstep/comm/store/internal/bounded_call.h"
#include "lockstep/comm/store/internal/listen_socket.h"
#include "lockstep/comm/store/internal/tcp_store_client.h"

namespace lockstep::comm::internal {
namespace {

// LibTorch's stores count connection time in whole seconds. 0 means no limit.
std::chrono::milliseconds StoreTimeout(absl::Duration timeout) {
  return absl::ToChronoMilliseconds(std::max(timeout, absl::Seconds(1)));
}

// Runs `make` on a thread, which is abandoned if the system's resolver or a server does not answer in time.
absl::StatusOr<C10dStore> MakeByDeadline(std::function<absl::StatusOr<C10dStore>()> make, absl::Duration timeout) {
  const auto made = std::make_shared<absl::StatusOr<C10dStore>>();
  // `make` ends at the timeout, with a reason. The extra time is for that; only a call that hangs uses it up.
  const absl::Time deadline = absl::Now() + std::max(timeout, absl::Seconds(1)) + absl::Milliseconds(500);
  LOCKSTEP_RETURN_IF_ERROR(CallByDeadline(
      [made, make = std::move(make)] {
        *made = make();
        return made->status();
      },
      deadline));
  return *made;
}

// LibTorch's message does not say whether the host or only the port is the problem.
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

C10dStore WithoutPrefixesAndSeals(C10dStore store) {
  while (true) {
    auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store.get());
    const auto* const sealed = dynamic_cast<const SealedStore*>(store.get());
    if (!prefix && !sealed) return store;
    store = prefix ? prefix->getUnderlyingStore() : sealed->underlying();
  }
}

}  // namespace

std::string ToString(const Address& address) { return WithPort(address.host, absl::StrCat(address.port)); }

absl::StatusOr<C10dStore> ServeTcpStore(const Address& address, UniqueFd listen_fd, absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = StoreTimeout(timeout);
#if !LOCKSTEP_LIBTORCH_AT_LEAST(2, 11)
  options.useLibUV = false;  // 2.7's server of that kind takes no listening socket
#endif
  options.port = address.port;
  // LibTorch's server is its own client. That client logs a C++ stack for each attempt that fails, so it never connects
  // to an address of another machine.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string own_host, OwnHost(listen_fd.get()));
  options.masterListenFd = listen_fd.Release();  // the server closes it
  auto store = MakeByDeadline(
      [own_host, options] { return C10dStore(c10::make_intrusive<c10d::TCPStore>(own_host, options)); }, timeout);
  if (!store.ok()) return Annotate(store.status(), absl::StrCat("serving the store at ", ToString(address)));
  return store;
}

absl::StatusOr<C10dStore> ConnectTcpStore(const Address& address, bool count_as_worker, absl::Duration timeout,
                                          std::function<void(absl::string_view why)> waiting,
                                          const std::function<absl::Status()>& interruption, bool host_is_up) {
  if (!waiting) waiting = [](absl::string_view) {};
  auto store = MakeByDeadline(
      [=]() -> absl::StatusOr<C10dStore> {
        LOCKSTEP_ASSIGN_OR_RETURN(auto client, TcpStoreClient::Connect(address.host, address.port, timeout, waiting,
                                                                       interruption, host_is_up));
        if (count_as_worker) client->CountAsWorker();
        return C10dStore(std::move(client));
      },
      timeout);
  if (store.ok()) return store;
  if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
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
  const C10dStore inner = WithoutPrefixesAndSeals(store);
  if (const auto* client = dynamic_cast<TcpStoreClient*>(inner.get())) {
    return absl::StrCat("store at ", ToString({client->host(), client->port()}));
  }
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(inner.get())) {
    return absl::StrCat("store at ", ToString({tcp->getHost(), tcp->getPort()}));
  }
  if (const auto* file = dynamic_cast<c10d::FileStore*>(inner.get()))
    return absl::StrCat("file store ", file->getPath());
  return "in-process store";
}

int64_t RequestsSent(const C10dStore& store) {
  const C10dStore inner = WithoutPrefixesAndSeals(store);
  const auto* client = dynamic_cast<const TcpStoreClient*>(inner.get());
  return client ? client->requests_sent() : 0;
}

}  // namespace lockstep::comm::internal
