// The side of a TCP rendezvous that serves the others.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_HOST_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_HOST_H_

#include <poll.h>
#include <stdint.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/rendezvous/rendezvous.h"
#include "lockstep/launch/rendezvous/shared_view.h"
#include "lockstep/launch/rendezvous/tcp/sealed_stream.h"
#include "lockstep/launch/rendezvous/tcp/tcp_rendezvous.h"

namespace lockstep::launch {

class TcpHost : public Rendezvous {
 public:
  static absl::StatusOr<std::unique_ptr<TcpHost>> Start(const TcpOptions& options, const crypto::JobSecret& secret,
                                                        UniqueFd listener);
  ~TcpHost() override;

  void Post(absl::string_view text) override;
  void Decide(absl::string_view text) override;
  int fd() const override { return view_->fd(); }
  View Look() override { return view_->Look(); }
  void Leave(absl::Duration timeout) override;

 private:
  // A connection. Until `agent` is known it may be a stranger's.
  struct Guest {
    Guest(UniqueFd socket, std::string from, const crypto::JobSecret& secret, int64_t now_ns);
    std::string agent;
    std::string from;          // its address
    std::string wrong_job_id;  // why it was refused; empty: its secret is another one
    SealedStream stream;
    int64_t heard_ns;
    int64_t ended_ns = 0;   // when the connection ended
    uint64_t decision = 0;  // the number of the last one that it was sent
  };

  TcpHost(const TcpOptions& options, const crypto::JobSecret& secret, UniqueFd listener,
          std::unique_ptr<SharedView> view, Event wake);
  void Run();
  bool Stops();
  bool Accept();
  void Serve(Guest* guest);
  void Take(Guest* guest, absl::string_view message);
  void Welcome(Guest* guest, absl::string_view hello);
  void RecordRefusal(const Guest& guest);
  void SendDecision();
  void SendBeats();
  int64_t DeadlineOf(const Guest& guest) const;
  void RemoveEnded();
  int64_t NextDeadline() const;

  const TcpOptions options_;
  const crypto::JobSecret secret_;
  const UniqueFd listener_;
  const std::unique_ptr<SharedView> view_;
  const Event wake_;

  // Only the thread uses these.
  std::vector<std::unique_ptr<Guest>> guests_;
  std::set<std::string> noticed_;  // addresses of launchers that were refused
  int64_t next_beat_ns_ = 0;
  int64_t full_until_ns_ = 0;  // no descriptor was free for a connection

  absl::Mutex mutex_;
  std::string decision_ ABSL_GUARDED_BY(mutex_);
  uint64_t decisions_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t leave_deadline_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_HOST_H_
