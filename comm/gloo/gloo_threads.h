#ifndef LOCKSTEP_COMM_GLOO_GLOO_THREADS_H_
#define LOCKSTEP_COMM_GLOO_GLOO_THREADS_H_

#include <functional>
#include <memory>

#include "lockstep/comm/gloo/gloo_work.h"

namespace lockstep::comm {

// Runs `make`, and returns or throws what it does. When a thread that Gloo starts in it is about to end the process by
// an exception, as Gloo's does where a message is longer than the receiver expects, the thread ends alone, and `calls`
// break with the exception's text. Such threads are known by their name, "gloo-" and a number, which they have from the
// thread that `make` runs on.
void StartGloo(const std::shared_ptr<GlooCalls>& calls, const std::function<void()>& make);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_GLOO_GLOO_THREADS_H_
