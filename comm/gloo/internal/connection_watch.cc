#include "lockstep/comm/gloo/internal/connection_watch.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"

namespace lockstep::comm::internal {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(2);
// Longer than the group's watch needs for a host that vanished: see MillisecondsWithoutAnswer().
constexpr int kMostSilenceMs = 25'000;

ino_t InodeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::set<int> EventLoops() {
  std::set<int> loops;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    int fd;
    const std::string target = std::filesystem::read_symlink(entry->path(), gone).string();
    if (target == "anon_inode:[eventpoll]" && absl::SimpleAtoi(entry->path().filename().string(), &fd)) {
      loops.insert(fd);
    }
  }
  return loops;
}

// The kernel lists the descriptors of an event loop: "tfd:        7 events: ...".
std::map<int, ino_t> SocketsOf(const std::set<int>& loops) {
  std::map<int, ino_t> sockets;
  for (const int loop : loops) {
    std::ifstream file(absl::StrCat("/proc/self/fdinfo/", loop));
    for (std::string line; std::getline(file, line);) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      int fd;
      if (words.size() >= 2 && words[0] == "tfd:" && absl::SimpleAtoi(words[1], &fd)) sockets[fd] = InodeOf(fd);
    }
  }
  return sockets;
}

absl::StatusOr<std::unique_ptr<ConnectionWatch>> ConnectionWatch::Start(
    const std::set<int>& before, std::function<void(const std::string&)> on_silence) {
  std::unique_ptr<ConnectionWatch> watch(new ConnectionWatch(std::move(on_silence)));
  watch->loops_ = EventLoops();
  for (const int fd : before) watch->loops_.erase(fd);
  watch->Look();
  LOCKSTEP_ASSIGN_OR_RETURN(watch->thread_,
                            StartThread("the thread of Gloo's connections", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

void ConnectionWatch::Look() {
  std::map<int, ino_t> sockets = SocketsOf(loops_);
  for (const auto& [fd, inode] : sockets) {
    const auto known = sockets_.find(fd);
    if (known == sockets_.end() || known->second != inode) AskForAnswers(fd);
  }
  sockets_ = std::move(sockets);
}

ConnectionWatch::~ConnectionWatch() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::string ConnectionWatch::Silent() {
  Look();
  for (const auto& [fd, inode] : sockets_) {
    if (MillisecondsWithoutAnswer(fd) < kMostSilenceMs) continue;
    if (const std::optional<std::string> peer = PeerOf(fd)) return *peer;
  }
  return connecting_.Silent(absl::Now(), sockets_);
}

void ConnectionWatch::Run() {
  std::string silent;
  while (silent.empty()) {
    {
      MutexLock lock(mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kInterval)) return;
    }
    silent = Silent();
  }
  RecordSilentHost(silent);
  on_silence_(absl::StrCat("host ", silent, " ", kDoesNotAnswer));
}

}  // namespace lockstep::comm::internal
