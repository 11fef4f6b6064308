#include "lockstep/comm/shm/communicator.h"

#include <sched.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/shm/heap.h"
#include "lockstep/comm/shm/internal/collective.h"
#include "lockstep/comm/shm/internal/futex.h"
#include "lockstep/comm/shm/internal/layout.h"
#include "lockstep/comm/shm/internal/mail.h"
#include "lockstep/comm/shm/internal/port.h"

namespace lockstep::comm::shm {
namespace {

using internal::Collective;
using internal::Control;
using internal::Layout;
using internal::Mail;
using internal::Message;
using internal::Port;

// Polls between looks at the clock, at failures, and at other threads that want the lock.
constexpr int kBurst = 64;
// How long a wait polls before it sleeps. If each rank has a processor, it is longer than the time between the ranks of
// a training step. If they share processors, polling only keeps the others from running.
constexpr absl::Duration kLongSpin = absl::Microseconds(200);
constexpr absl::Duration kShortSpin = absl::Microseconds(5);
// The longest sleep. After each, deadlines and damage are checked.
constexpr absl::Duration kLongestSleep = absl::Milliseconds(50);

int UsableProcessors() {
  cpu_set_t processors;
  return sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

// The stores before it become visible to others before the loads after it are made.
void FullFence(std::atomic<uint32_t>& word) {
#if defined(__SANITIZE_THREAD__)
  word.fetch_add(0);  // ThreadSanitizer does not know fences
#else
  (void)word;
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

struct Communicator::Arena {
  Arena(std::unique_ptr<Segment> shared, int rank, int size)
      : segment(std::move(shared)),
        layout(segment->data(), size),
        heap(layout.heap(rank), layout.header().heap_bytes) {}
  const std::unique_ptr<Segment> segment;
  const Layout layout;
  Heap heap;
};

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const CommunicatorOptions& options) {
  if (options.rank < 0 || options.rank >= options.size || options.size > internal::kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of ", options.size,
                                                   ": shared memory is for 1 to ", internal::kMostRanks, " ranks"));
  }
  const size_t fixed = Layout::FixedBytes(options.size);
  const size_t wanted = fixed + options.size * Layout::RoundUp(options.heap_bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                            Segment::Share(options.rank, options.size, wanted, fixed, options.exchange,
                                           options.deadline, [&](char* data, size_t bytes) {
                                             internal::Header& header = Layout(data, options.size).header();
                                             header.magic = Layout::kMagic;
                                             header.heap_bytes = (bytes - fixed) / options.size / Layout::RoundUp(1) *
                                                                 Layout::RoundUp(1);
                                           }));
  if (Layout(segment->data(), options.size).header().magic != Layout::kMagic) {
    return absl::InternalError("the shared memory was made by another version of this library");
  }
  auto arena = std::make_shared<Arena>(std::move(segment), options.rank, options.size);
  return std::unique_ptr<Communicator>(new Communicator(std::move(arena), options.rank, options.size));
}

Communicator::Communicator(std::shared_ptr<Arena> arena, int rank, int size)
    : arena_(std::move(arena)),
      port_(std::make_unique<Port>(arena_->layout, rank, size, arena_->segment->bytes())),
      spin_(size <= UsableProcessors() ? kLongSpin : kShortSpin),
      mail_(std::make_unique<Mail>(*port_)) {}

Communicator::~Communicator() {
  std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status ended = absl::CancelledError("the communicator was destroyed");
  for (const auto& collective : collectives_) collective->End(ended);
  mail_->Fail(ended);
}

int Communicator::rank() const { return port_->rank; }
int Communicator::size() const { return port_->size; }

std::shared_ptr<char> Communicator::Allocate(size_t bytes) {
  char* const data = arena_->heap.Allocate(bytes);
  if (!data) return nullptr;
  return std::shared_ptr<char>(data, [arena = arena_](char* pointer) { arena->heap.Free(pointer); });
}

bool Communicator::Owns(const void* data, size_t bytes) const {
  const char *const begin = static_cast<const char*>(data), *const segment = arena_->segment->data();
  return begin >= segment && begin + bytes <= segment + arena_->segment->bytes();
}

size_t Communicator::PlaceOf(const void* data) const {
  return static_cast<const char*>(data) - arena_->segment->data();
}

std::shared_ptr<char> Communicator::AtPlace(size_t place, size_t bytes) {
  const size_t all = arena_->segment->bytes();
  if (place > all || bytes > all - place) return nullptr;
  return std::shared_ptr<char>(arena_, arena_->segment->data() + place);
}

std::shared_ptr<Operation> Communicator::Start(Request request) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto call = std::make_shared<Collective>(*port_, std::move(request), next_number_++);
  CheckOthersLocked();
  if (!failure_.ok()) {
    call->End(failure_);
    return call;
  }
  collectives_.push_back(call);
  ProgressLocked();
  WakeOthersLocked();
  return call;
}

std::shared_ptr<Operation> Communicator::Send(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner) {
  return StartMessage(Kind::kSend, peer, tag, buffer, std::move(owner));
}

std::shared_ptr<Operation> Communicator::Receive(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner) {
  return StartMessage(Kind::kReceive, peer, tag, buffer, std::move(owner));
}

std::shared_ptr<Operation> Communicator::StartMessage(Kind kind, int peer, int64_t tag, Buffer buffer,
                                                      std::shared_ptr<void> owner) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto message = std::make_shared<Message>(kind, peer, tag, buffer, std::move(owner), next_message_++);
  CheckOthersLocked();
  if (!failure_.ok()) {
    message->End(failure_);
    return message;
  }
  if (kind == Kind::kSend) {
    mail_->Send(message);
  } else {
    mail_->Receive(message);
  }
  ProgressLocked();
  WakeOthersLocked();
  return message;
}

bool Communicator::ProgressLocked() {
  bool moved = false;
  if (!mail_->idle()) {
    const absl::StatusOr<bool> mail = mail_->Step();
    if (!mail.ok()) {
      FailLocked(mail.status());
      return true;
    }
    moved = *mail;
  }
  while (!collectives_.empty()) {
    Collective& front = *collectives_.front();
    if (!front.begun()) front.Begin(next_round_);
    moved |= front.Step();
    if (!front.done()) break;
    if (!front.status().ok()) {
      FailLocked(front.status());
      return true;
    }
    next_round_ = front.end_round();
    collectives_.pop_front();
  }
  return moved;
}

// A rank announces that it sleeps before it checks for the last time. So either it saw the newest publication, or this
// function sees the announcement.
void Communicator::WakeOthersLocked() {
  if (!port_->TakeNews()) return;
  internal::Header& header = arena_->layout.header();
  FullFence(header.sleepers);
  if (header.sleepers.load() == 0) return;
  for (int r = 0; r < port_->size; ++r) {
    Control& control = arena_->layout.control(r);
    if (r == port_->rank || control.asleep.load() == 0) continue;
    control.doorbell.fetch_add(1);
    internal::FutexWakeAll(control.doorbell);
  }
}

bool Communicator::Test(const Operation& operation) {
  if (operation.done()) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  CheckOthersLocked();
  ProgressLocked();
  WakeOthersLocked();
  return operation.done();
}

absl::Status Communicator::Wait(const Operation& operation, absl::Time deadline) {
  if (!operation.done()) {
    const absl::Status waited = WaitUntil([&operation] { return operation.done(); }, deadline);
    if (!operation.done()) return waited;
  }
  return operation.status();
}

absl::Status Communicator::Drain(absl::Time deadline) {
  return WaitUntil([this] { return collectives_.empty() && mail_->idle(); }, deadline);
}

template <typename IsDone>
absl::Status Communicator::WaitUntil(const IsDone& is_done, absl::Time deadline) {
  const absl::Time begin = absl::Now();
  absl::Time spin_end = begin + spin_;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    bool moved = false;
    for (int i = 0; i < kBurst; ++i) {
      moved |= ProgressLocked();
      if (is_done()) break;
      internal::CpuRelax();
    }
    WakeOthersLocked();
    if (is_done() || !failure_.ok()) return failure_;
    CheckOthersLocked();
    if (!failure_.ok()) return failure_;
    const absl::Time now = absl::Now();
    if (now >= deadline) return TimedOutLocked(now - begin);
    if (moved) spin_end = now + spin_;
    if (now >= spin_end) {
      SleepLocked(lock, is_done, deadline);
    } else {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

template <typename IsDone>
void Communicator::SleepLocked(std::unique_lock<std::mutex>& lock, const IsDone& is_done, absl::Time deadline) {
  Control& control = arena_->layout.control(port_->rank);
  internal::Header& header = arena_->layout.header();
  const uint32_t rings = control.doorbell.load();
  control.asleep.fetch_add(1);
  header.sleepers.fetch_add(1);
  // The last check, after this rank has announced that it sleeps.
  CheckOthersLocked();
  const bool moved = ProgressLocked();
  WakeOthersLocked();
  if (!moved && !is_done() && failure_.ok()) {
    lock.unlock();
    internal::FutexWait(control.doorbell, rings, std::min(kLongestSleep, deadline - absl::Now()));
    lock.lock();
  }
  control.asleep.fetch_sub(1);
  header.sleepers.fetch_sub(1);
}

// A failure that the application or another rank reported.
void Communicator::CheckOthersLocked() {
  if (!failure_.ok()) return;
  if (aborted_.load(std::memory_order_acquire)) {
    std::unique_lock<std::mutex> lock(abort_mutex_);
    const absl::Status cause = abort_cause_;
    lock.unlock();
    FailLocked(cause);
    return;
  }
  if (arena_->layout.header().failures.load(std::memory_order_acquire) == 0) return;
  for (int r = 0; r < port_->size; ++r) {
    const Control& control = arena_->layout.control(r);
    if (control.failed.load(std::memory_order_acquire) == 0) continue;
    FailLocked(absl::Status(static_cast<absl::StatusCode>(control.failure_code),
                            std::string(control.failure, strnlen(control.failure, sizeof(control.failure)))));
    return;
  }
}

void Communicator::FailLocked(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  for (const auto& collective : collectives_) {
    if (!collective->done()) collective->End(status);
  }
  collectives_.clear();
  mail_->Fail(status);
  Control& control = arena_->layout.control(port_->rank);
  const size_t bytes = std::min(status.message().size(), sizeof(control.failure) - 1);
  memcpy(control.failure, status.message().data(), bytes);
  control.failure[bytes] = 0;
  control.failure_code = static_cast<int32_t>(status.code());
  control.failed.store(1, std::memory_order_release);
  arena_->layout.header().failures.fetch_add(1);
  port_->RecordNews();
  WakeOthersLocked();
}

absl::Status Communicator::TimedOutLocked(absl::Duration waited) {
  const std::string what = collectives_.empty() ? "a message" : collectives_.front()->Name();
  const std::string ranks = collectives_.empty() ? mail_->WaitsFor() : collectives_.front()->WaitsFor();
  FailLocked(absl::DeadlineExceededError(
      absl::StrCat("rank ", port_->rank, ": ", what, " timed out after ",
                   absl::FormatDuration(absl::Floor(waited + absl::Microseconds(500), absl::Milliseconds(1))),
                   " waiting for rank ", ranks)));
  return failure_;
}

void Communicator::Abort(const absl::Status& cause) {
  {
    std::lock_guard<std::mutex> lock(abort_mutex_);
    abort_cause_.Update(cause);
  }
  aborted_.store(true, std::memory_order_release);
  Control& control = arena_->layout.control(port_->rank);
  control.doorbell.fetch_add(1);
  internal::FutexWakeAll(control.doorbell);
}

absl::Status Communicator::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

}  // namespace lockstep::comm::shm
