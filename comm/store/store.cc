#include "lockstep/comm/store/store.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/store/internal/bounded_call.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm {

using internal::C10dStore;

struct Store::Impl {
  C10dStore store;
  absl::Duration timeout;
  std::string who;      // "rank 1: store at host:port", for messages
  bool remote = false;  // whether a call may wait for another process
  int port = -1;
  std::shared_ptr<std::atomic<bool>> stuck = std::make_shared<std::atomic<bool>>(false);

  // Runs `call` by the deadline. It must own everything it uses.
  absl::Status Talk(absl::string_view what, absl::Time deadline,
                    std::function<absl::Status(c10d::Store& store)> call) const;
  // Talk() for a call that returns something.
  template <typename T>
  absl::StatusOr<T> Ask(absl::string_view what, std::function<T(c10d::Store& store)> call) const {
    const auto result = std::make_shared<T>();
    LOCKSTEP_RETURN_IF_ERROR(Talk(what, absl::Now() + timeout, [result, call = std::move(call)](c10d::Store& store) {
      *result = call(store);
      return absl::OkStatus();
    }));
    return *result;
  }
};

namespace {

// A live server answers long before this. Beyond it the server is stopped, or the network is cut.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(20);

std::string Who(int rank) { return rank < 0 ? "" : absl::StrCat("rank ", rank, ": "); }

std::string Quoted(absl::string_view call, absl::string_view key) { return absl::StrCat(call, " \"", key, "\""); }

std::string MissingKeys(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!store.check({key})) missing.push_back(absl::StrCat("\"", key, "\""));
  }
  return absl::StrJoin(missing, ", ");
}

// Polls instead of calling c10d's wait(), which would block the calls of other threads.
absl::Status Await(c10d::Store& store, const std::vector<std::string>& keys, absl::Time deadline) {
  absl::Duration pause = absl::Milliseconds(1);
  while (!store.check(keys)) {
    const absl::Time now = absl::Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("not set by the deadline: ", MissingKeys(store, keys)));
    }
    absl::SleepFor(std::min(pause, deadline - now));
    pause = std::min(2 * pause, kLongestPause);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Store::Impl::Talk(absl::string_view what, absl::Time deadline,
                               std::function<absl::Status(c10d::Store& store)> call) const {
  const std::string context = absl::StrCat(who, ": ", what);
  if (*stuck) return absl::UnavailableError(absl::StrCat(context, ": the store stopped answering before"));
  if (!remote) {
    absl::Status returned;
    const absl::Status thrown = TorchStatus("", [&] { returned = call(*store); });
    returned.Update(thrown);
    return returned.ok() ? returned : Annotate(returned, context);
  }
  const auto answered = std::make_shared<std::atomic<bool>>(false);
  const absl::Status status = internal::CallByDeadline(
      [answered, store = store, call = std::move(call)] {
        absl::Status returned;
        const absl::Status thrown = TorchStatus("", [&] { returned = call(*store); });
        returned.Update(thrown);
        *answered = true;
        return returned;
      },
      std::max(deadline, absl::Now()) + kAnswerTime);
  if (status.ok() || *answered) return status.ok() ? status : Annotate(status, context);
  *stuck = true;
  return absl::DeadlineExceededError(absl::StrCat(
      context, ": the store does not answer (the process that serves it is stopped, or the network is cut)"));
}

Store Store::FromC10d(c10::intrusive_ptr<c10d::Store> store, const StoreOptions& options) {
  Impl impl;
  const std::string place = internal::Describe(store);
  impl.store = std::move(store);
  impl.timeout = options.timeout;
  impl.who = absl::StrCat(Who(options.rank), place);
  impl.remote = place != "in-process store";
  return Store(std::make_shared<const Impl>(std::move(impl)));
}

absl::StatusOr<Store> Store::ServeTcp(const std::string& host, int port, const StoreOptions& options) {
  const auto serve = [&]() -> absl::StatusOr<Store> {
    LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, internal::BindListenSocket(host, port));
    LOCKSTEP_ASSIGN_OR_RETURN(const int bound, internal::BoundPort(fd.get()));
    LOCKSTEP_ASSIGN_OR_RETURN(C10dStore store, internal::ServeTcpStore({host, bound}, std::move(fd), options.timeout));
    Impl impl = *FromC10d(std::move(store), options).impl_;
    impl.port = bound;
    return Store(std::make_shared<const Impl>(std::move(impl)));
  };
  auto store = serve();
  if (store.ok() || options.rank < 0) return store;
  return Annotate(store.status(), absl::StrCat("rank ", options.rank));
}

absl::StatusOr<Store> Store::ConnectTcp(const std::string& host, int port, const StoreOptions& options) {
  auto store = internal::ConnectTcpStore({host, port}, /*count_as_worker=*/false, options.timeout);
  if (!store.ok()) {
    return absl::Status(store.status().code(), absl::StrCat(Who(options.rank), store.status().message()));
  }
  Impl impl = *FromC10d(*std::move(store), options).impl_;
  impl.port = port;
  return Store(std::make_shared<const Impl>(std::move(impl)));
}

absl::StatusOr<Store> Store::OpenFile(const std::string& path, int users, const StoreOptions& options) {
  auto store = internal::OpenFileStore(path, users, options.timeout);
  if (store.ok()) return FromC10d(*std::move(store), options);
  return absl::Status(store.status().code(), absl::StrCat(Who(options.rank), store.status().message()));
}

Store Store::InProcess(const StoreOptions& options) {
  return FromC10d(c10::make_intrusive<c10d::HashStore>(), options);
}

Store Store::WithPrefix(absl::string_view prefix) const {
  Impl impl = *impl_;
  impl.store = c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), impl.store);
  return Store(std::make_shared<const Impl>(std::move(impl)));
}

absl::Status Store::Set(absl::string_view key, absl::string_view value) const {
  return impl_->Talk(Quoted("set", key), absl::Now() + impl_->timeout,
                     [key = std::string(key), value = std::string(value)](c10d::Store& store) {
                       store.set(key, value);
                       return absl::OkStatus();
                     });
}

absl::StatusOr<std::string> Store::Get(absl::string_view key) const {
  const auto value = std::make_shared<std::string>();
  LOCKSTEP_RETURN_IF_ERROR(
      impl_->Talk(Quoted("get", key), absl::InfinitePast(), [value, key = std::string(key)](c10d::Store& store) {
        if (!store.check({key})) return absl::NotFoundError("no such key");
        *value = store.get_to_str(key);
        return absl::OkStatus();
      }));
  return *value;
}

absl::StatusOr<std::string> Store::Get(absl::string_view key, absl::Time deadline) const {
  const auto value = std::make_shared<std::string>();
  LOCKSTEP_RETURN_IF_ERROR(
      impl_->Talk(Quoted("get", key), deadline, [value, deadline, key = std::string(key)](c10d::Store& store) {
        LOCKSTEP_RETURN_IF_ERROR(Await(store, {key}, deadline));
        *value = store.get_to_str(key);
        return absl::OkStatus();
      }));
  return *value;
}

absl::StatusOr<int64_t> Store::Add(absl::string_view key, int64_t amount) const {
  return impl_->Ask<int64_t>(Quoted("add", key),
                             [key = std::string(key), amount](c10d::Store& store) { return store.add(key, amount); });
}

absl::Status Store::Wait(const std::vector<std::string>& keys, absl::Time deadline) const {
  return impl_->Talk("wait", deadline, [keys, deadline](c10d::Store& store) { return Await(store, keys, deadline); });
}

absl::StatusOr<bool> Store::Check(const std::vector<std::string>& keys) const {
  return impl_->Ask<bool>("check", [keys](c10d::Store& store) { return store.check(keys); });
}

absl::StatusOr<bool> Store::Delete(absl::string_view key) const {
  // FileStore itself always returns that it deleted the key.
  return impl_->Ask<bool>(Quoted("delete", key), [key = std::string(key)](c10d::Store& store) {
    return store.check({key}) && store.deleteKey(key);
  });
}

absl::StatusOr<std::string> Store::CompareSet(absl::string_view key, absl::string_view expected,
                                              absl::string_view desired) const {
  return impl_->Ask<std::string>(Quoted("compare_set", key), [key = std::string(key), expected = std::string(expected),
                                                              desired = std::string(desired)](c10d::Store& store) {
    return store.compareSet(key, expected, desired);
  });
}

const c10::intrusive_ptr<c10d::Store>& Store::c10d() const { return impl_->store; }
int Store::port() const { return impl_->port; }

}  // namespace lockstep::comm
