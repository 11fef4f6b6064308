#include "lockstep/comm/shm/internal/mail.h"

#include <string.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::shm::internal {

std::string Message::Name() const {
  const std::string peer = peer_ == kAnySource ? "any rank" : absl::StrCat("rank ", peer_);
  return absl::StrCat(NameOf(kind_), " #", number_, kind_ == Kind::kSend ? " to " : " from ", peer, ", tag ", tag_,
                      ", ", buffer_.bytes, " bytes");
}

Mail::Mail(Port& port) : port_(port), peers_(port.size) {}

Mail::Peer& Mail::PeerOf(int rank) {
  std::unique_ptr<Peer>& peer = peers_[rank];
  if (!peer) peer = std::make_unique<Peer>();
  return *peer;
}

void Mail::Send(std::shared_ptr<Message> message) {
  ++pending_sends_;
  Peer& peer = PeerOf(message->peer_);
  peer.outgoing.push_back(std::move(message));
}

void Mail::Receive(std::shared_ptr<Message> message) {
  ++(message->peer_ == kAnySource ? receives_of_any_ : PeerOf(message->peer_).receives);
  receives_.push_back(std::move(message));
  look_in_kept_ = true;
}

absl::StatusOr<bool> Mail::Step() {
  bool moved = false;
  for (int to = 0; to < port_.size && pending_sends_ > 0; ++to) {
    if (peers_[to]) moved |= StepOutgoing(to);
  }
  if (look_in_kept_) {
    look_in_kept_ = false;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool found, StepKept());
    moved |= found;
  }
  for (int from = 0; from < port_.size && AwaitsMessages(); ++from) {
    // The mailbox of a rank from which nothing is awaited is not read: the first read of it would take a page of
    // memory.
    if (!SomeoneWaitsFor(from) && !(peers_[from] && peers_[from]->incoming.under_way)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool read, StepIncoming(from));
    moved |= read;
  }
  return moved;
}

bool Mail::StepOutgoing(int to) {
  bool moved = false;
  Peer& peer = *peers_[to];
  Mailbox& mailbox = port_.layout.mailbox(port_.rank, to);
  while (!peer.outgoing.empty()) {
    Message& message = *peer.outgoing.front();
    const uint64_t piece = peer.next_sent;
    if (piece >= mailbox.taken.load(std::memory_order_acquire) + kMailSlots) break;
    MailSlot& slot = mailbox.slots[piece % kMailSlots];
    slot.message_bytes = message.buffer_.bytes;
    slot.tag = message.tag_;
    const size_t bytes = std::min(kMailBytes, message.buffer_.bytes - message.moved_);
    if (bytes != 0) memcpy(slot.data, message.buffer_.data + message.moved_, bytes);
    message.moved_ += bytes;
    slot.published.store(piece + 1, std::memory_order_release);
    ++peer.next_sent;
    port_.RecordNews();
    moved = true;
    if (message.moved_ < message.buffer_.bytes) continue;
    message.End(absl::OkStatus());
    peer.outgoing.pop_front();
    --pending_sends_;
  }
  return moved;
}

absl::StatusOr<bool> Mail::StepIncoming(int from) {
  bool moved = false;
  Incoming& incoming = PeerOf(from).incoming;
  Mailbox& mailbox = port_.layout.mailbox(from, port_.rank);
  while (true) {
    const MailSlot& slot = mailbox.slots[incoming.next_piece % kMailSlots];
    if (slot.published.load(std::memory_order_acquire) != incoming.next_piece + 1) return moved;
    if (!incoming.under_way) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool wanted, BeginIncoming(from, slot));
      if (!wanted) return moved;
    }
    const size_t bytes = std::min(kMailBytes, incoming.bytes - incoming.moved);
    char* const to = incoming.receive ? incoming.receive->buffer_.data : &incoming.kept[0];
    if (bytes != 0) memcpy(to + incoming.moved, slot.data, bytes);
    incoming.moved += bytes;
    ++incoming.next_piece;
    mailbox.taken.store(incoming.next_piece, std::memory_order_release);
    port_.RecordNews();
    moved = true;
    if (incoming.moved == incoming.bytes) FinishIncoming(from);
  }
}

// Returns whether to read the message: a receive matches it, or matches one behind it.
absl::StatusOr<bool> Mail::BeginIncoming(int from, const MailSlot& slot) {
  Incoming& incoming = peers_[from]->incoming;
  std::shared_ptr<Message> receive = TakeReceive(from, slot.tag);
  if (receive) {
    LOCKSTEP_RETURN_IF_ERROR(CheckSize(*receive, from, slot.message_bytes));
  } else if (!SomeoneWaitsFor(from)) {
    return false;
  }
  incoming.receive = std::move(receive);
  incoming.under_way = true;
  incoming.bytes = slot.message_bytes;
  incoming.moved = 0;
  incoming.tag = slot.tag;
  if (!incoming.receive) incoming.kept.resize(incoming.bytes);
  return true;
}

void Mail::FinishIncoming(int from) {
  Incoming& incoming = peers_[from]->incoming;
  incoming.under_way = false;
  if (!incoming.receive) {
    peers_[from]->kept.push_back({incoming.tag, std::move(incoming.kept)});
    incoming.kept.clear();
    look_in_kept_ = true;
    return;
  }
  incoming.receive->source_ = from;
  incoming.receive->End(absl::OkStatus());
  incoming.receive.reset();
  --matched_receives_;
}

std::shared_ptr<Message> Mail::TakeReceive(int from, int64_t tag) {
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive) {
    const Message& message = **receive;
    if (message.tag_ != tag || (message.peer_ != from && message.peer_ != kAnySource)) continue;
    std::shared_ptr<Message> taken = std::move(*receive);
    receives_.erase(receive);
    --(taken->peer_ == kAnySource ? receives_of_any_ : peers_[from]->receives);
    ++matched_receives_;
    return taken;
  }
  return nullptr;
}

bool Mail::SomeoneWaitsFor(int from) const {
  return receives_of_any_ > 0 || (peers_[from] && peers_[from]->receives > 0);
}

absl::Status Mail::CheckSize(Message& receive, int from, size_t bytes) {
  if (receive.buffer_.bytes == bytes) return absl::OkStatus();
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(receive.Name(), ": rank ", from, " sent ", bytes, " bytes, expected ", receive.buffer_.bytes));
  --matched_receives_;
  receive.End(error);
  return error;
}

// Receives whose message has been kept already.
absl::StatusOr<bool> Mail::StepKept() {
  bool moved = false;
  for (int from = 0; from < port_.size; ++from) {
    if (!peers_[from]) continue;
    std::list<Kept>& messages = peers_[from]->kept;
    for (auto kept = messages.begin(); kept != messages.end();) {
      const std::shared_ptr<Message> receive = TakeReceive(from, kept->tag);
      if (!receive) {
        ++kept;
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(CheckSize(*receive, from, kept->bytes.size()));
      --matched_receives_;
      if (!kept->bytes.empty()) memcpy(receive->buffer_.data, kept->bytes.data(), kept->bytes.size());
      receive->source_ = from;
      receive->End(absl::OkStatus());
      kept = messages.erase(kept);
      moved = true;
    }
  }
  return moved;
}

void Mail::Fail(const absl::Status& status) {
  for (const auto& receive : receives_) receive->End(status);
  receives_.clear();
  receives_of_any_ = 0;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    for (const auto& message : peer->outgoing) message->End(status);
    peer->outgoing.clear();
    peer->receives = 0;
    if (peer->incoming.receive) peer->incoming.receive->End(status);
    peer->incoming.receive.reset();
  }
  pending_sends_ = 0;
  matched_receives_ = 0;
}

std::string Mail::WaitsFor() const {
  std::set<int> ranks;
  for (int r = 0; r < port_.size; ++r) {
    if (peers_[r] && (!peers_[r]->outgoing.empty() || peers_[r]->incoming.receive)) ranks.insert(r);
  }
  for (const auto& receive : receives_) {
    if (receive->peer_ != kAnySource) ranks.insert(receive->peer_);
  }
  return ranks.empty() ? "any" : absl::StrJoin(ranks, ", ");
}

}  // namespace lockstep::comm::shm::internal
