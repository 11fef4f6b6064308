#include "lockstep/launch/process/signal_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kSlots = 64;

// These are global, because a signal handler has no argument for them. A slot holds the descriptor to write to plus
// one; 0 is free.
std::atomic<int> slots[kSlots];
std::atomic<int> running_handlers{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use lock-free atomics only");

// std::mutex, because ThreadSanitizer does not see through the absl::Mutex of a prebuilt Abseil.
std::mutex mutex;
int users = 0;  // guarded by mutex, as is `earlier`
struct sigaction earlier[std::size(kSignals)];

void OnSignal(int signal) {
  const int saved_errno = errno;
  running_handlers.fetch_add(1);
  const char byte = static_cast<char>(signal);
  for (const std::atomic<int>& slot : slots) {
    const int fd = slot.load() - 1;
    if (fd >= 0 && write(fd, &byte, 1) < 0) continue;  // full: the signal is pending already
  }
  running_handlers.fetch_sub(1);
  errno = saved_errno;
}

void InstallHandlersLocked() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &earlier[i]);
    if (earlier[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

void RestoreHandlersLocked() {
  for (int i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &earlier[i], nullptr);
}

int TakeFreeSlotLocked(int fd) {
  for (int i = 0; i < kSlots; ++i) {
    if (slots[i].load() != 0) continue;
    slots[i].store(fd + 1);
    return i;
  }
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalRelay>> SignalRelay::Create() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("launch: no pipe for signals: ", strerror(errno)));
  }
  UniqueFd read_end = AboveStdio(UniqueFd(ends[0])), write_end = AboveStdio(UniqueFd(ends[1]));
  if (!read_end.valid() || !write_end.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("launch: no pipe for signals: ", strerror(errno)));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const int slot = TakeFreeSlotLocked(write_end.get());
  if (slot < 0)
    return absl::ResourceExhaustedError(absl::StrCat("launch: ", kSlots, " launches run in this process already"));
  if (users++ == 0) InstallHandlersLocked();
  return std::unique_ptr<SignalRelay>(new SignalRelay(std::move(read_end), std::move(write_end), slot));
}

SignalRelay::SignalRelay(UniqueFd read_end, UniqueFd write_end, int slot)
    : read_end_(std::move(read_end)), write_end_(std::move(write_end)), slot_(slot) {}

SignalRelay::~SignalRelay() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--users == 0) RestoreHandlersLocked();
  slots[slot_].store(0);
  // A handler in another thread may be about to write to the descriptor that closes next.
  while (running_handlers.load() != 0) sched_yield();
}

int SignalRelay::Take() {
  unsigned char signal = 0;
  return read(read_end_.get(), &signal, 1) == 1 ? signal : 0;
}

}  // namespace lockstep::launch
