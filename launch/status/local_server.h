// Answers lines of the same user's processes at a Unix socket. Nothing has a thread: the caller polls fd() together
// with its other descriptors.
//
// No client can delay the caller or make it grow. There are at most 16 clients; further ones wait in the kernel. A line
// has at most 1 KiB. A client has 5 s to say it and to read the answer; then its connection closes. If others may wait,
// one that says nothing has 100 ms. No call blocks.

#ifndef LOCKSTEP_LAUNCH_STATUS_LOCAL_SERVER_H_
#define LOCKSTEP_LAUNCH_STATUS_LOCAL_SERVER_H_

#include <stdint.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

class LocalServer {
 public:
  // Gives the answer to a line, without its line break. A line break is appended.
  using Answer = std::function<std::string(const std::string& line)>;

  // Listens in `folder`, which it makes, under SocketName(pid). Sockets of launchers that are gone are removed there.
  // FailedPrecondition: the folder is not as it must be, or another launcher has the name. ResourceExhausted: no
  // descriptor is free.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Create(const std::string& folder, pid_t pid, Answer answer);
  // Removes the socket.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Readable when Serve() has something to do.
  int fd() const { return events_.get(); }

  // Takes what has come, and answers. Call it when fd() is readable.
  void Serve();

 private:
  struct Client {
    UniqueFd fd;
    int64_t accepted_ns;
    std::string line;    // what has come of it
    std::string answer;  // what is left of it
    bool answers = false;
  };

  LocalServer(UniqueFd folder, pid_t pid, Answer answer);
  absl::Status Listen();
  absl::Status Publish();
  absl::Status Watch();
  void Accept();
  bool Advance(Client* client);
  bool Read(Client* client);
  int64_t DeadlineOf(const Client& client) const;
  void RemoveExpired(int64_t now_ns);
  void WatchListener(bool watch);
  void SetTimer();

  const UniqueFd folder_;
  const pid_t pid_;
  const Answer answer_;
  UniqueFd listener_;
  UniqueFd timer_;   // ends at the next deadline
  UniqueFd events_;  // an epoll of the others
  bool published_ = false;
  bool accepts_ = false;     // events_ has listener_
  int64_t pause_until_ = 0;  // no descriptor was free for a client; nobody is accepted before
  std::map<int, Client> clients_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_LOCAL_SERVER_H_
