#ifndef LOCKSTEP_COMM_SHM_INTERNAL_MAIL_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_MAIL_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/shm/internal/port.h"
#include "lockstep/comm/shm/operation.h"

namespace lockstep::comm::shm::internal {

constexpr int kAnySource = -1;

// A message to or from another rank.
class Message final : public Operation {
 public:
  Message(Kind kind, int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner, uint64_t number)
      : kind_(kind), peer_(peer), tag_(tag), buffer_(buffer), owner_(std::move(owner)), number_(number) {}
  std::string Name() const override;

  void End(const absl::Status& status) {
    owner_.reset();
    Finish(status);
  }

 private:
  friend class Mail;

  const Kind kind_;
  const int peer_;  // or kAnySource
  const int64_t tag_;
  const Buffer buffer_;
  std::shared_ptr<void> owner_;
  const uint64_t number_;
  size_t moved_ = 0;  // bytes sent
};

// One rank's messages. Messages between two ranks arrive in order, in pieces. A receive takes the first message with
// its tag. A message without a matching receive waits in the mailbox, or in this process's memory once another receive
// needs a message behind it.
class Mail {
 public:
  explicit Mail(Port& port);

  void Send(std::shared_ptr<Message> message);
  void Receive(std::shared_ptr<Message> message);

  // Takes every message as far as it goes; whether anything moved. An error ends the communicator.
  absl::StatusOr<bool> Step();
  bool idle() const { return pending_sends_ == 0 && !AwaitsMessages(); }

  void Fail(const absl::Status& status);

  // The ranks that messages under way wait for.
  std::string WaitsFor() const;

 private:
  // A message that is coming in from one rank.
  struct Incoming {
    uint64_t next_piece = 0;
    bool under_way = false;
    size_t bytes = 0, moved = 0;
    int64_t tag = 0;
    std::shared_ptr<Message> receive;  // the matching receive; null: none yet, and the message is in `kept`
    std::string kept;
  };
  struct Kept {
    int64_t tag;
    std::string bytes;
  };
  // The messages with one other rank.
  struct Peer {
    std::deque<std::shared_ptr<Message>> outgoing;
    uint64_t next_sent = 0;  // piece
    Incoming incoming;
    std::list<Kept> kept;  // in order
    int receives = 0;      // the number of `receives_` that name this rank
  };

  bool AwaitsMessages() const { return !receives_.empty() || matched_receives_ > 0; }
  Peer& PeerOf(int rank);
  bool StepOutgoing(int to);
  absl::StatusOr<bool> StepIncoming(int from);
  absl::StatusOr<bool> BeginIncoming(int from, const MailSlot& slot);
  void FinishIncoming(int from);
  std::shared_ptr<Message> TakeReceive(int from, int64_t tag);
  bool SomeoneWaitsFor(int from) const;
  // Ends `receive` with the error that it returns.
  absl::Status CheckSize(Message& receive, int from, size_t bytes);
  absl::StatusOr<bool> StepKept();

  Port& port_;
  int pending_sends_ = 0;
  int matched_receives_ = 0;  // whose message is coming in
  // By rank. Null before the first message or receive, since a Peer has 800 bytes and a rank of a large group exchanges
  // messages with few others.
  std::vector<std::unique_ptr<Peer>> peers_;
  std::list<std::shared_ptr<Message>> receives_;  // without a message yet, in order
  int receives_of_any_ = 0;                       // of these, the ones from any rank
  bool look_in_kept_ = false;
};

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_MAIL_H_
