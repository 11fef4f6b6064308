// A backend whose ranks are threads of one process, for tests. Supports every collective and send and receive, on CPU
// tensors.
//
// A program that depends on //comm/testing:thread_backend has it as "threads", for InitProcessGroup(). "auto" prefers
// any other backend.

#ifndef LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
#define LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/testing/thread_hub.h"

namespace lockstep::comm::testing {

// Fulfils the guarantees of comm/backend.h. When it is destroyed, the rank leaves the hub.
c10::intrusive_ptr<c10d::Backend> MakeThreadBackend(const ThreadHub& hub, int rank);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
