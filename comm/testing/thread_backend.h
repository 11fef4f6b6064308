// A backend whose ranks are threads of one process, for tests: every collective and send and receive, on CPU tensors.
//
// Depending on //comm/testing:thread_backend also registers it as "threads", so that InitProcessGroup() can make it;
// "auto" prefers any other.

#ifndef LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
#define LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/testing/thread_hub.h"

namespace lockstep::comm::testing {

// Keeps what comm/backend.h promises. Its destructor makes the rank leave the hub.
c10::intrusive_ptr<c10d::Backend> MakeThreadBackend(const ThreadHub& hub, int rank);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
