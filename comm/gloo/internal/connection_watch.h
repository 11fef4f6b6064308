// Finds out that another host does not answer, although its other connections may: Gloo waits for it without a limit.

#ifndef LOCKSTEP_COMM_GLOO_INTERNAL_CONNECTION_WATCH_H_
#define LOCKSTEP_COMM_GLOO_INTERNAL_CONNECTION_WATCH_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/comm/internal/silent_hosts.h"

namespace lockstep::comm::internal {

// The descriptors of this process by which threads wait for events.
std::set<int> EventLoops();

// The sockets of these event loops: descriptors, and their inodes.
std::map<int, ino_t> SocketsOf(const std::set<int>& loops);

// Looks every 2 s at the sockets of the event loops of this process that were not there `before`, which Gloo has made:
// there is no other way to its sockets. Gloo may connect them later.
class ConnectionWatch {
 public:
  // `on_silence` is called once, on the watch's thread, if a host has answered nothing for 25 s, or for 15 s when Gloo
  // connects to it: "host 10.0.0.3 does not answer this one; can the two reach each other?" ResourceExhausted: no
  // thread can start.
  static absl::StatusOr<std::unique_ptr<ConnectionWatch>> Start(const std::set<int>& before,
                                                                std::function<void(const std::string&)> on_silence);
  ~ConnectionWatch();

 private:
  explicit ConnectionWatch(std::function<void(const std::string&)> on_silence) : on_silence_(std::move(on_silence)) {}
  void Run();
  void Look();
  std::string Silent();

  const std::function<void(const std::string&)> on_silence_;
  std::set<int> loops_;
  std::map<int, ino_t> sockets_;  // by descriptor; another socket may get it once this one is closed
  ConnectingHosts connecting_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_GLOO_INTERNAL_CONNECTION_WATCH_H_
