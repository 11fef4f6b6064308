#include "lockstep/comm/internal/silent_hosts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/socket.h"

namespace lockstep::comm::internal {
namespace {

// When one rank has waited for 20 s or more, the others have for as long, less the 5 s between two questions of TCP.
constexpr int kLongSilenceMs = 10'000;

// The first of these messages was sent a second before.
constexpr absl::Duration kMostSilence = absl::Seconds(14);

// "0100007F": words of the machine's order, as /proc/net/tcp has an address.
std::string AddressOf(absl::string_view hex) {
  uint32_t words[4] = {};
  const size_t count = hex.size() / 8;
  for (size_t i = 0; i < count && i < 4; ++i) {
    if (!absl::SimpleHexAtoi(hex.substr(8 * i, 8), &words[i])) return "";
  }
  char text[INET6_ADDRSTRLEN] = "";
  return inet_ntop(count == 1 ? AF_INET : AF_INET6, words, text, sizeof(text)) ? text : "";
}

// Returns whether the system has sent the first message of this socket, which connects, more than once.
bool TriesAgain(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_SYN_SENT &&
         info.tcpi_retransmits > 0;
}

// The address to which the socket connects: getpeername() has none yet. The lines of these files: number, local
// address, remote address, state, queues, timer, repetitions, user, timeout, inode.
std::string TargetOf(ino_t socket) {
  constexpr size_t kRemote = 2, kInode = 9;
  for (const char* name : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      uint64_t inode = 0;
      if (words.size() <= kInode || !absl::SimpleAtoi(words[kInode], &inode) || inode != socket) continue;
      return AddressOf(words[kRemote].substr(0, words[kRemote].find(':')));
    }
  }
  return "";
}

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);

struct Known {
  std::set<std::string> noted;
  std::set<ino_t> before;  // sockets that do not count
};

Known& TheKnown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const known = new Known();
  return *known;
}

// This process's TCP connections: descriptors, and their inodes.
std::map<int, ino_t> TcpConnections() {
  std::map<int, ino_t> connections;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return connections;
  while (const dirent* entry = readdir(folder.get())) {
    int fd;
    struct stat status = {};
    if (absl::SimpleAtoi(entry->d_name, &fd) && PeerOf(fd) && fstat(fd, &status) == 0) connections[fd] = status.st_ino;
  }
  return connections;
}

}  // namespace

std::optional<std::string> PeerOf(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  if (getpeername(fd, address, &length) != 0 || (peer.ss_family != AF_INET && peer.ss_family != AF_INET6)) {
    return std::nullopt;
  }
  int type = 0;
  socklen_t type_length = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0 || type != SOCK_STREAM) return std::nullopt;
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string ConnectingHosts::Silent(absl::Time now, const std::map<int, ino_t>& sockets) {
  std::map<ino_t, absl::Time> since;
  for (const auto& [fd, inode] : sockets) {
    if (!TriesAgain(fd)) continue;
    const auto before = since_.find(inode);
    since[inode] = before == since_.end() ? now : before->second;
  }
  since_ = std::move(since);
  for (const auto& [inode, begin] : since_) {
    if (now - begin < kMostSilence) continue;
    if (std::string target = TargetOf(inode); !target.empty()) return target;
  }
  return "";
}

void RecordSilentHost(const std::string& address) {
  const MutexLock lock(mutex);
  TheKnown().noted.insert(address);
}

void ForgetSilentHosts() {
  Known known;
  for (const auto& [fd, inode] : TcpConnections()) known.before.insert(inode);
  const MutexLock lock(mutex);
  TheKnown() = std::move(known);
}

std::vector<std::string> TakeSilentHosts() {
  const MutexLock lock(mutex);
  Known& known = TheKnown();
  std::set<std::string> hosts = std::exchange(known.noted, {});
  for (const auto& [fd, inode] : TcpConnections()) {
    if (known.before.count(inode) != 0 || MillisecondsWithoutAnswer(fd) < kLongSilenceMs) continue;
    if (std::optional<std::string> peer = PeerOf(fd)) hosts.insert(*std::move(peer));
  }
  return {hosts.begin(), hosts.end()};
}

}  // namespace lockstep::comm::internal
