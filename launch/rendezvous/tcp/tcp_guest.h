// The side of a TCP rendezvous that connects to the endpoint.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_GUEST_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_GUEST_H_

#include <stdint.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/rendezvous/rendezvous.h"
#include "lockstep/launch/rendezvous/shared_view.h"
#include "lockstep/launch/rendezvous/tcp/sealed_stream.h"
#include "lockstep/launch/rendezvous/tcp/tcp_rendezvous.h"

namespace lockstep::launch {

class TcpGuest : public Rendezvous {
 public:
  // `port_is_taken`: the endpoint is on this node, and another program listens there, which may be a launcher.
  static absl::StatusOr<std::unique_ptr<TcpGuest>> Start(const TcpOptions& options, const crypto::JobSecret& secret,
                                                         bool port_is_taken);
  ~TcpGuest() override;

  void Post(absl::string_view text) override;
  void Decide(absl::string_view) override {}
  int fd() const override { return view_->fd(); }
  View Look() override { return view_->Look(); }
  void Leave(absl::Duration timeout) override;

 private:
  TcpGuest(const TcpOptions& options, const crypto::JobSecret& secret, bool port_is_taken,
           std::unique_ptr<SharedView> view, Event wake);
  void Run();
  bool Stops();
  void Connect();
  void Take(absl::string_view message);
  void SendPost();
  void Drop();
  void RecordEnd();
  std::string Problem() const;
  std::optional<Silence> SilenceNow() const;
  void ShowReach();
  void Lose(const absl::Status& status);
  void CheckDeadlines();
  int64_t NextDeadline() const;
  void Wait();

  const TcpOptions options_;
  const crypto::JobSecret secret_;
  const bool port_is_taken_;
  const std::string endpoint_;
  const std::unique_ptr<SharedView> view_;
  const Event wake_;

  // Only the thread uses these.
  std::optional<SealedStream> stream_;
  bool hello_sent_ = false, welcome_ = false;
  bool was_welcome_ = false;  // ever
  bool is_away_ = false, is_lost_ = false;
  int64_t began_ns_, heard_ns_, connected_ns_ = 0, next_connect_ns_ = 0, next_beat_ns_ = 0;
  int64_t ended_ns_ = kNever;  // when the other side ended a connection that had been welcome, until the next one
  absl::Duration pause_;       // before the next try to connect
  std::string problem_ = "nobody answers";
  uint64_t posted_ = 0;  // the number of the last text that this connection was given

  absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  uint64_t posts_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t leave_deadline_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_GUEST_H_
