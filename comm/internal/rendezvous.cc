#include "lockstep/comm/internal/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/listen_socket.h"

namespace lockstep::comm::internal {
namespace {

struct Address {
  std::string host;
  int port = 0;
};

absl::StatusOr<Address> FromEnvironment(const RankEnvironment& environment) {
  if (environment.master_addr.empty()) {
    return absl::InvalidArgumentError("init_method env:// needs environment variable MASTER_ADDR, which is not set");
  }
  if (environment.master_port < 0) {
    return absl::InvalidArgumentError("init_method env:// needs environment variable MASTER_PORT, which is not set");
  }
  return Address{environment.master_addr, environment.master_port};
}

// "host:port" or "[v6]:port".
absl::StatusOr<Address> ParseAddress(absl::string_view init_method) {
  absl::string_view text = absl::StripPrefix(init_method, "tcp://");
  const size_t colon = text.rfind(':');
  Address address;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &address.port) ||
      address.port < 1 || address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("init_method \"", init_method, "\": expected tcp://host:port with a port from 1 to 65535"));
  }
  address.host = std::string(absl::StripSuffix(absl::StripPrefix(text.substr(0, colon), "["), "]"));
  return address;
}

// LibTorch's stores count connection time in whole seconds, 0 meaning for ever.
std::chrono::milliseconds StoreTimeout(absl::Duration timeout) {
  return absl::ToChronoMilliseconds(std::max(timeout, absl::Seconds(1)));
}

// The socket that a launcher bound and this process inherited, or a new one.
absl::StatusOr<int> ListenSocket(const Address& address, int inherited) {
  if (inherited < 0) return BindListenSocket(address.host, address.port);
  LOCKSTEP_ASSIGN_OR_RETURN(const int port, BoundPort(inherited));
  if (port != address.port) {
    return absl::InvalidArgumentError(absl::StrCat("environment variable LOCKSTEP_MASTER_LISTEN_FD=", inherited,
                                                   " is bound to port ", port, ", but MASTER_PORT=", address.port));
  }
  fcntl(inherited, F_SETFD, FD_CLOEXEC);
  return inherited;
}

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> Serve(const Address& address, const RendezvousOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.isServer = true;
  store_options.waitWorkers = false;
  store_options.timeout = StoreTimeout(options.timeout);
  const bool inherits = options.init_method == "env://";
  LOCKSTEP_ASSIGN_OR_RETURN(const int fd, ListenSocket(address, inherits ? options.environment.master_listen_fd : -1));
  LOCKSTEP_ASSIGN_OR_RETURN(const int port, BoundPort(fd));
  store_options.masterListenFd = fd;
  store_options.port = port;
  return TorchStatusOr("serving the store", [&]() -> c10::intrusive_ptr<c10d::Store> {
    return c10::make_intrusive<c10d::TCPStore>(address.host, store_options);
  });
}

absl::StatusOr<Rendezvous> OpenTcp(const Address& address, const RendezvousOptions& options) {
  Rendezvous rendezvous;
  rendezvous.master_addr = address.host;
  const bool agent = options.init_method == "env://" && options.environment.use_agent_store;
  if (options.rank == 0 && !agent) {
    LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.server, Serve(address, options));
  }
  // A client of its own, also on rank 0: it counts among the workers that a Python rank 0 waits for, and does not wait
  // itself.
  c10d::TCPStoreOptions store_options;
  store_options.port = address.port;
  store_options.numWorkers = options.world_size;
  store_options.timeout = StoreTimeout(options.timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.store,
                            TorchStatusOr(absl::StrCat("connecting to the store at ", address.host, ":", address.port),
                                          [&]() -> c10::intrusive_ptr<c10d::Store> {
                                            return c10::make_intrusive<c10d::TCPStore>(address.host, store_options);
                                          }));
  if (agent) {
    // The agent's store outlives a restart of the ranks: as PyTorch's env:// does, each attempt keeps to its own keys.
    rendezvous.store = c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("/worker/attempt_", options.environment.restart_count), rendezvous.store);
  }
  return rendezvous;
}

absl::StatusOr<Rendezvous> OpenFile(const RendezvousOptions& options) {
  const std::string path(absl::StripPrefix(options.init_method, "file://"));
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("init_method \"", options.init_method, "\": expected file:// and an absolute path"));
  }
  Rendezvous rendezvous;
  LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.store,
                            TorchStatusOr("opening the store", [&]() -> c10::intrusive_ptr<c10d::Store> {
                              auto store = c10::make_intrusive<c10d::FileStore>(path, options.world_size);
                              store->setTimeout(StoreTimeout(options.timeout));
                              return store;
                            }));
  return rendezvous;
}

constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// The meeting of the ranks: each writes who it is under its number, and reads the others'.
class Meeting {
 public:
  Meeting(c10d::Store& store, int rank, int world_size) : store_(store), rank_(rank), world_size_(world_size) {}

  absl::Status Join() {
    static std::atomic<int> calls{0};  // tells the ranks of one process apart
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    const std::string me = absl::StrCat(world_size_, "|host ", host, ", pid ", getpid(), "|", calls++);
    const std::string holder = store_.compareSet(MemberKey(rank_), "", me);
    if (holder == me) return absl::OkStatus();
    return Fail(absl::AlreadyExistsError(
        absl::StrCat("rank ", rank_, ": two processes were given this rank: ", Who(holder), " and ", Who(me))));
  }

  absl::Status AwaitOthers(absl::Time deadline) {
    std::vector<int> missing;
    for (int i = 0; i < world_size_; ++i) {
      if (i != rank_) missing.push_back(i);
    }
    absl::Duration pause = absl::Milliseconds(1);
    while (true) {
      LOCKSTEP_RETURN_IF_ERROR(CheckArrivals(missing));
      if (missing.empty()) return absl::OkStatus();
      if (store_.check({kFailureKey})) return absl::AbortedError(store_.get_to_str(kFailureKey));
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("these ranks have not joined: ", absl::StrJoin(missing, ", ")));
      }
      absl::SleepFor(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }

 private:
  static constexpr char kFailureKey[] = "lockstep/failure";

  static std::string MemberKey(int rank) { return absl::StrCat("lockstep/member/", rank); }

  static std::string Who(const std::string& member) {
    const std::vector<std::string> fields = absl::StrSplit(member, '|');
    return fields.size() == 3 ? fields[1] : member;
  }

  absl::Status CheckArrivals(std::vector<int>& missing) {
    std::vector<int> still_missing;
    for (const int other : missing) {
      if (!store_.check({MemberKey(other)})) {
        still_missing.push_back(other);
        continue;
      }
      const std::string member = store_.get_to_str(MemberKey(other));
      int world_size = 0;
      if (!absl::SimpleAtoi(member.substr(0, member.find('|')), &world_size) || world_size != world_size_) {
        return Fail(absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " was given world size ", world_size_,
                                                            ", but rank ", other, " (", Who(member), ") world size ",
                                                            world_size)));
      }
    }
    missing = std::move(still_missing);
    return absl::OkStatus();
  }

  // Tells the other ranks before failing here.
  absl::Status Fail(absl::Status status) {
    store_.compareSet(kFailureKey, "", std::string(status.message()));
    return status;
  }

  c10d::Store& store_;
  const int rank_;
  const int world_size_;
};

}  // namespace

absl::StatusOr<Rendezvous> OpenStore(const RendezvousOptions& options) {
  if (options.init_method == "env://") {
    LOCKSTEP_ASSIGN_OR_RETURN(const Address address, FromEnvironment(options.environment));
    return OpenTcp(address, options);
  }
  if (absl::StartsWith(options.init_method, "tcp://")) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Address address, ParseAddress(options.init_method));
    return OpenTcp(address, options);
  }
  if (absl::StartsWith(options.init_method, "file://")) return OpenFile(options);
  return absl::InvalidArgumentError(
      absl::StrCat("init_method \"", options.init_method, "\": expected env://, tcp://host:port or file:///path"));
}

absl::Status MeetAllRanks(const Rendezvous& rendezvous, const RendezvousOptions& options) {
  const absl::Time deadline = absl::Now() + options.timeout;
  absl::Status met;
  const absl::Status spoken = TorchStatus("meeting the other ranks", [&] {
    Meeting meeting(*rendezvous.store, options.rank, options.world_size);
    met = meeting.Join();
    if (met.ok()) met = meeting.AwaitOthers(deadline);
  });
  met.Update(spoken);
  // The store goes with the rank that serves it: the others must have time to read there why.
  if (!met.ok() && rendezvous.server) absl::SleepFor(3 * kLongestPause);
  return met;
}

}  // namespace lockstep::comm::internal
