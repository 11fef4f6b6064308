#ifndef LOCKSTEP_COMM_INTERNAL_SIGPIPE_H_
#define LOCKSTEP_COMM_INTERNAL_SIGPIPE_H_

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace lockstep::comm::internal {

// Keeps SIGPIPE from this thread, and for good from the threads that start while it lives. Libuv (under LibTorch's
// TCPStore) and Gloo write to sockets without MSG_NOSIGNAL: their threads must be started under one of these, or the
// death of a peer ends this process too, unless the program ignores SIGPIPE, as Python does.
//
//   BlockSigpipe block;
//   auto store = c10::make_intrusive<c10d::TCPStore>(...);
//
// Destroyed on the thread that made it. It restores the thread's mask, and swallows a SIGPIPE that came meanwhile.
class BlockSigpipe {
 public:
  BlockSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    const sigset_t sigpipe = Sigpipe();
    pthread_sigmask(SIG_BLOCK, &sigpipe, &before_);
  }
  ~BlockSigpipe() {
    // SIGPIPE is sent to the thread that wrote. So if it is pending now and was not before, a write under this block
    // caused it.
    const sigset_t sigpipe = Sigpipe();
    const timespec at_once = {};
    if (!was_pending_) sigtimedwait(&sigpipe, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockSigpipe(const BlockSigpipe&) = delete;
  BlockSigpipe& operator=(const BlockSigpipe&) = delete;

 private:
  static sigset_t Sigpipe() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
  }

  sigset_t before_;
  bool was_pending_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_SIGPIPE_H_
