// The backends that are linked into a program. A backend is a target that registers itself: depending on //comm/gloo
// makes "gloo" known.

#ifndef LOCKSTEP_COMM_BACKEND_H_
#define LOCKSTEP_COMM_BACKEND_H_

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::comm {

// What a backend is made from on one rank.
struct BackendContext {
  c10::intrusive_ptr<c10d::Store> store;  // for this backend alone, shared by all ranks
  int rank = 0;
  int size = 1;
  absl::Duration timeout;
  std::string master_addr;          // where the store listens; empty for a store that has no address
  std::string group;                // what messages call the group: "world" or a sub-group's name
  std::vector<RankIdentity> ranks;  // of every rank, by rank; empty where not every rank is a Lockstep rank
};

// What a Lockstep backend promises beyond c10d::Backend:
// - Work::wait(timeout) throws c10::DistBackendError at the deadline, with "timed out" in its message, and never waits
//   longer; zero means the context's timeout.
// - abort() may be called from any thread and does not block: every wait() under way, or begun later, throws within
//   100 ms, and the destructor then returns within 1 s whatever the other ranks do.
// - ReduceOp::AVG is done by the backend itself, for floating-point and complex dtypes.
// - One whose supportsTensorAlloc() is true takes ReduceOp::PREMUL_SUM of float and double in all_reduce.
// - What it cannot do throws c10::NotImplementedError that names the operation and the dtype, before anything is sent.
struct BackendInfo {
  std::string name;                      // as in InitOptions::backend
  std::vector<c10::DeviceType> devices;  // whose tensors it takes
  int preference = 0;                    // "auto" takes the linked and usable one with the highest for a device type
  // Whether it can serve this group (shm: all ranks on one host); a pure function of the context, so that every rank
  // comes to the same answer. Null: always.
  std::function<absl::Status(const BackendContext&)> usable;
  std::function<absl::StatusOr<c10::intrusive_ptr<c10d::Backend>>(const BackendContext&)> create;
};

// Adds a backend; returns true so that it can initialise a namespace-scope variable in the backend's own source. A
// second one of the same name is a programming error and ends the process.
bool RegisterBackend(BackendInfo info);

// The names of the backends that are linked in, sorted.
std::vector<std::string> LinkedBackends();

// For each device type, the backends that may serve it, the most preferred first.
struct BackendCandidates {
  bool is_auto = false;  // the best of those that can; else each device type has one, which must
  std::map<c10::DeviceType, std::vector<BackendInfo>> by_device;
};

// What `spec` names, in PyTorch's three forms: "auto" (all that are linked, for each device type that the program can
// use), "gloo" (one for all its device types) and "cpu:gloo,cuda:nccl". NotFound, listing the linked ones, for a name
// that is not linked; InvalidArgument for a device type that the backend does not serve or a spec of another form.
absl::StatusOr<BackendCandidates> FindBackends(absl::string_view spec);

// The most preferred of FindBackends(spec) for each device type, whether or not it can serve a group.
absl::StatusOr<std::map<c10::DeviceType, BackendInfo>> SelectBackends(absl::string_view spec);

// The backends of this program that the ranks cannot use together, and why: {"shm", "rank 1 has not linked it"}.
using UnavailableBackends = std::map<std::string, std::string>;

// The backend of a device type, and what became of the others.
struct BackendChoice {
  struct PassedOver {
    std::string name;
    std::string reason;
  };

  BackendInfo backend;
  std::vector<PassedOver> passed_over;      // preferred to it, but they cannot serve the group
  std::vector<std::string> less_preferred;  // they were not asked
};

// The backend that serves each device type in the group that `context` describes (its store is not used): for "auto"
// the first one that is not in `unavailable` and is usable. The same on every rank that gives the same spec.
// FailedPrecondition, with the reason of each, where there is none.
absl::StatusOr<std::map<c10::DeviceType, BackendChoice>> ChooseBackends(const BackendCandidates& candidates,
                                                                        const UnavailableBackends& unavailable,
                                                                        const BackendContext& context);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_BACKEND_H_
