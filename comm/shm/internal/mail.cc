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

Mail::Mail(Port& port)
    : port_(port), outgoing_(port.size), next_sent_(port.size), incoming_(port.size), kept_(port.size) {}

void Mail::Send(std::shared_ptr<Message> message) {
  ++pending_sends_;
  outgoing_[message->peer_].push_back(std::move(message));
}

void Mail::Receive(std::shared_ptr<Message> message) {
  receives_.push_back(std::move(message));
  look_in_kept_ = true;
}

absl::StatusOr<bool> Mail::Step() {
  bool moved = false;
  for (int to = 0; to < port_.size && pending_sends_ > 0; ++to) moved |= StepOutgoing(to);
  if (look_in_kept_) {
    look_in_kept_ = false;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool found, StepKept());
    moved |= found;
  }
  for (int from = 0; from < port_.size && AwaitsMessages(); ++from) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool read, StepIncoming(from));
    moved |= read;
  }
  return moved;
}

bool Mail::StepOutgoing(int to) {
  bool moved = false;
  Mailbox& mailbox = port_.layout.mailbox(port_.rank, to);
  while (!outgoing_[to].empty()) {
    Message& message = *outgoing_[to].front();
    const uint64_t piece = next_sent_[to];
    if (piece >= mailbox.taken.load(std::memory_order_acquire) + kMailSlots) break;
    MailSlot& slot = mailbox.slots[piece % kMailSlots];
    slot.message_bytes = message.buffer_.bytes;
    slot.tag = message.tag_;
    const size_t bytes = std::min(kMailBytes, message.buffer_.bytes - message.moved_);
    if (bytes != 0) memcpy(slot.data, message.buffer_.data + message.moved_, bytes);
    message.moved_ += bytes;
    slot.published.store(piece + 1, std::memory_order_release);
    ++next_sent_[to];
    port_.NoteNews();
    moved = true;
    if (message.moved_ < message.buffer_.bytes) continue;
    message.End(absl::OkStatus());
    outgoing_[to].pop_front();
    --pending_sends_;
  }
  return moved;
}

absl::StatusOr<bool> Mail::StepIncoming(int from) {
  bool moved = false;
  Incoming& incoming = incoming_[from];
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
    port_.NoteNews();
    moved = true;
    if (incoming.moved == incoming.bytes) FinishIncoming(from);
  }
}

// Whether to read the message: a receive matches it, or matches one behind it.
absl::StatusOr<bool> Mail::BeginIncoming(int from, const MailSlot& slot) {
  Incoming& incoming = incoming_[from];
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
  Incoming& incoming = incoming_[from];
  incoming.under_way = false;
  if (!incoming.receive) {
    kept_[from].push_back({incoming.tag, std::move(incoming.kept)});
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
    ++matched_receives_;
    return taken;
  }
  return nullptr;
}

bool Mail::SomeoneWaitsFor(int from) const {
  for (const auto& receive : receives_) {
    if (receive->peer_ == from || receive->peer_ == kAnySource) return true;
  }
  return false;
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
    for (auto kept = kept_[from].begin(); kept != kept_[from].end();) {
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
      kept = kept_[from].erase(kept);
      moved = true;
    }
  }
  return moved;
}

void Mail::Fail(const absl::Status& status) {
  for (auto& queue : outgoing_) {
    for (const auto& message : queue) message->End(status);
    queue.clear();
  }
  for (const auto& receive : receives_) receive->End(status);
  receives_.clear();
  for (Incoming& incoming : incoming_) {
    if (incoming.receive) incoming.receive->End(status);
    incoming.receive.reset();
  }
  pending_sends_ = 0;
  matched_receives_ = 0;
}

std::string Mail::WaitsFor() const {
  std::set<int> ranks;
  for (int r = 0; r < port_.size; ++r) {
    if (!outgoing_[r].empty() || incoming_[r].receive) ranks.insert(r);
  }
  for (const auto& receive : receives_) {
    if (receive->peer_ != kAnySource) ranks.insert(receive->peer_);
  }
  return ranks.empty() ? "any" : absl::StrJoin(ranks, ", ");
}

}  // namespace lockstep::comm::shm::internal
