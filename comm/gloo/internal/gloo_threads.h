#ifndef LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_THREADS_H_
#define LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_THREADS_H_

#include <functional>
#include <memory>

#include "lockstep/comm/gloo/internal/gloo_work.h"

namespace lockstep::comm::internal {

// Runs `make` on another thread, and lets its exceptions pass. Gloo starts threads in `make`. If an exception in such a
// thread would end the process, as for a message longer than the receiver expects, only the thread ends, and `calls`
// break with the exception's text. These threads are recognised by their timer slack, which they inherit from the
// thread on which `make` runs.
//
// `look` is called about ten times a second meanwhile. If it throws, its exception passes, and the thread is abandoned:
// Gloo connects to other ranks without a way to end that before its timeout. So `make` must own what it uses.
void StartGloo(const std::shared_ptr<GlooCalls>& calls, std::function<void()> make, const std::function<void()>& look);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_THREADS_H_
