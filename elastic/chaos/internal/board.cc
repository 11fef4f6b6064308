#include "lockstep/elastic/chaos/internal/board.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::elastic::chaos::internal {
namespace {

static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

// A word with a moment: microseconds since the start of the board, and a value below it.
constexpr int kValueBits = 20, kOrderBits = 8;
constexpr uint64_t kValueMask = (uint64_t{1} << kValueBits) - 1;

int64_t OrderTo(pid_t pid, Order order) { return (int64_t{pid} << kOrderBits) | static_cast<int64_t>(order); }

void Raise(std::atomic<int64_t>* number, int64_t value) {
  int64_t before = *number;
  while (before < value && !number->compare_exchange_weak(before, value)) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Board>> Board::Map(const std::string& path, int flags) {
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!file.valid()) return absl::NotFoundError(absl::StrCat("chaos: ", path, ": ", strerror(errno)));
  // The pages that nobody writes take no space.
  void* memory = MAP_FAILED;
  if (ftruncate(file.get(), sizeof(Shared)) == 0) {
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (memory == MAP_FAILED) return absl::InternalError(absl::StrCat("chaos: ", path, ": ", strerror(errno)));
  return std::unique_ptr<Board>(new Board(static_cast<Shared*>(memory)));
}

absl::StatusOr<std::unique_ptr<Board>> Board::Create(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto board, Map(path, O_CREAT | O_EXCL));
  board->shared_->start_ns = MonotonicNanos() - 1000000;  // no moment is 0
  board->last_step() = kMostSteps - 1;
  return board;
}

absl::StatusOr<std::unique_ptr<Board>> Board::Open(const std::string& path) { return Map(path, 0); }

Board::~Board() { munmap(shared_, sizeof(Shared)); }

// The first note of the highest value stays.
void Board::Record(std::atomic<uint64_t>* word, int64_t value) {
  const uint64_t us = static_cast<uint64_t>(MonotonicNanos() - shared_->start_ns) / 1000;
  const uint64_t bits = static_cast<uint64_t>(value) & kValueMask;
  uint64_t before = *word;
  while ((before & kValueMask) < bits && !word->compare_exchange_weak(before, (us << kValueBits) | bits)) {
  }
}

Moment Board::Read(const std::atomic<uint64_t>& word) const {
  const uint64_t bits = word;
  Moment moment;
  if (bits == 0) return moment;
  moment.ns = shared_->start_ns + static_cast<int64_t>(bits >> kValueBits) * 1000;
  moment.value = static_cast<int64_t>(bits & kValueMask);
  return moment;
}

void Board::Start(int slot, pid_t pid) {
  Place& mine = place(slot);
  mine.stage = static_cast<int32_t>(Stage::kStarted);
  mine.generation = 0;
  mine.rank = -1;
  mine.pid = pid;
}

void Board::Enter(int slot, int64_t generation, int rank, int world_size) {
  Place& mine = place(slot);
  mine.rank = rank;
  mine.generation = generation;
  mine.stage = static_cast<int32_t>(Stage::kTrains);
  if (generation < kMostGenerations) Record(&shared_->generations[generation], world_size);
  Raise(&shared_->generation, generation);
}

Order Board::TakeOrder(int slot, pid_t pid) {
  Place& mine = place(slot);
  const int64_t order = mine.order;
  if (order >> kOrderBits != pid) return Order::kNone;
  mine.order = 0;
  mine.obeyed_ns = MonotonicNanos();
  return static_cast<Order>(order & ((1 << kOrderBits) - 1));
}

void Board::RecordBegin(int64_t step) {
  if (step < kMostSteps) ++shared_->begun[step];
}

void Board::RecordCommit(int64_t step, int64_t generation) {
  if (step < shared_->steps) ++shared_->undone;
  if (step < kMostSteps) Record(&shared_->commits[step], generation);
  Raise(&shared_->steps, step);
}

void Board::Give(int slot, pid_t pid, Order order) {
  place(slot).obeyed_ns = 0;
  place(slot).order = OrderTo(pid, order);
}

Moment Board::Commit(int64_t step) const {
  return step > 0 && step < kMostSteps ? Read(shared_->commits[step]) : Moment();
}

int Board::Begun(int64_t step) const { return step > 0 && step < kMostSteps ? shared_->begun[step].load() : 0; }

Moment Board::Generation(int64_t number) const {
  return number > 0 && number < kMostGenerations ? Read(shared_->generations[number]) : Moment();
}

}  // namespace lockstep::elastic::chaos::internal
