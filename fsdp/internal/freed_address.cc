#include "lockstep/fsdp/internal/freed_address.h"

#include <ATen/record_function.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"

namespace lockstep::fsdp::internal {
namespace {

// A reserved range. The handler reads ranges at any time, so they are never deleted, and used again.
struct Range {
  std::atomic<uintptr_t> begin{0};  // 0: the range is unused
  std::atomic<size_t> bytes{0};
  char name[256] = {};  // "rank 1: layers.0.weight"
  Range* next = nullptr;
};

ABSL_CONST_INIT absl::Mutex writer(absl::kConstInit);  // of the ranges
std::atomic<Range*> ranges{nullptr};                   // the first one

struct sigaction earlier;

// The operator or node of autograd that began last on this thread, without ones that another has called: an operator's
// own ones, and ones that gather its parameters.
thread_local char last_operator[128];
thread_local int depth = 0;  // of those that run

std::unique_ptr<at::ObserverContext> BeginOperator(const at::RecordFunction& function) {
  if (depth++ == 0) strncpy(last_operator, function.name(), sizeof(last_operator) - 1);
  return nullptr;
}

void EndOperator(const at::RecordFunction&, at::ObserverContext*) { --depth; }

// One line of text. Its functions are async-signal-safe, as snprintf() is not.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && size_ < sizeof(text_)) text_[size_++] = *text++;
    return *this;
  }
  Line& operator<<(size_t number) {
    char digits[24] = {};
    char* first = digits + sizeof(digits) - 1;
    do {
      *--first = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << first;
  }
  void Write() const {
    if (write(STDERR_FILENO, text_, size_) < 0) return;
  }

 private:
  char text_[1024];
  size_t size_ = 0;
};

const char* AccessOf(const void* context) {
#if defined(__x86_64__)
  // Bit 1 of the page fault's error code.
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "written" : "read";
#else
  return "used";
#endif
}

void Report(uintptr_t address, const void* context) {
  for (const Range* range = ranges; range; range = range->next) {
    const uintptr_t begin = range->begin;
    if (begin == 0 || address < begin || address - begin >= range->bytes) continue;
    Line line;
    line << range->name << " was " << AccessOf(context) << " by its pointer while it was freed, at byte "
         << address - begin << " of " << range->bytes;
    if (last_operator[0] != '\0') line << ", in or after " << last_operator;
    line << ": use it by operators in forward and backward, or while all ranks have FullParameters()\n";
    line.Write();
    return;
  }
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code == SEGV_ACCERR) Report(reinterpret_cast<uintptr_t>(info->si_addr), context);
  errno = error;
  if ((earlier.sa_flags & SA_SIGINFO) != 0) return earlier.sa_sigaction(signal, info, context);
  if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) return earlier.sa_handler(signal);
  // The access is repeated, and the process ends there.
  sigaction(signal, &earlier, nullptr);
  if (info->si_code <= 0) raise(signal);  // a process sent it
}

// Installs the handler once, and so that programs without Options::debug do not have it.
void Observe() {
  static const bool observes = [] {
    at::addGlobalCallback(at::RecordFunctionCallback(&BeginOperator, &EndOperator)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    struct sigaction action = {};
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, nullptr, &earlier);
    sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
  (void)observes;
}

// An unused range, which has no begin yet.
Range* TakeRange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer) {
  for (Range* range = ranges; range; range = range->next) {
    if (range->begin == 0) return range;
  }
  auto* const made = new Range;
  made->next = ranges;
  ranges = made;
  return made;
}

}  // namespace

absl::StatusOr<FreedAddress> ReserveFreedAddress(int rank, const std::string& parameter, int64_t bytes) {
  if (bytes == 0) return FreedAddress();
  Observe();
  void* const address =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("rank ", rank, ": Options::debug: no address space for the ",
                                                     bytes, " bytes of ", parameter, ": ", strerror(errno)));
  }
  const MutexLock lock(writer);
  Range* const range = TakeRange();
  absl::SNPrintF(range->name, sizeof(range->name), "rank %d: %s", rank, parameter);
  range->bytes = bytes;
  range->begin = reinterpret_cast<uintptr_t>(address);
  return FreedAddress(address);
}

void ReleaseAddress::operator()(void* address) const {
  const MutexLock lock(writer);
  for (Range* range = ranges; range; range = range->next) {
    if (range->begin != reinterpret_cast<uintptr_t>(address)) continue;
    range->begin = 0;
    munmap(address, range->bytes);
  }
}

}  // namespace lockstep::fsdp::internal
