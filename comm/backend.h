// The backends that are linked into a program. A backend is a target that registers itself: a program that depends on
// //comm/gloo has the backend "gloo".

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
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm {

// The arguments for creating a backend on one rank.
struct BackendContext {
  c10::intrusive_ptr<c10d::Store> store;  // for this backend only, shared by all ranks
  int rank = 0;
  int size = 1;
  absl::Duration timeout;
  std::string master_addr;          // where the store listens; empty for a store without an address
  std::string group;                // the group's name in messages: "world" or a sub-group's name
  std::vector<RankIdentity> ranks;  // every rank, by rank; empty unless all are Lockstep ranks
  bool connect_lazily = false;      // two ranks connect when they first exchange something, if the backend can do that
};

// A Lockstep backend must fulfil c10d::Backend and the following:
// - Work::wait(timeout) throws c10::DistBackendError at the deadline, with "timed out" in its message, and never waits
//   longer. Zero means the context's timeout.
// - abort() may be called from any thread and does not block. Every wait() under way or begun later throws within 100
//   ms. The destructor then returns within 1 s, whatever the other ranks do.
// - The backend itself implements ReduceOp::AVG, for floating-point and complex dtypes.
// - If supportsTensorAlloc() is true, all_reduce accepts ReduceOp::PREMUL_SUM of float and double.
// - An unsupported operation throws c10::NotImplementedError, which names the operation and the dtype, before anything
//   is sent.
struct BackendInfo {
  std::string name;                      // as in InitOptions::backend
  std::vector<c10::DeviceType> devices;  // the devices whose tensors it takes
  int preference = 0;  // for each device type, "auto" takes the usable backend with the highest preference
  // Returns an error if the backend cannot serve this group (shm: all ranks are on one host). Must be a pure function
  // of the context, so that every rank gets the same answer. If null, the backend can always serve it.
  std::function<absl::Status(const BackendContext&)> usable;
  std::function<absl::StatusOr<c10::intrusive_ptr<c10d::Backend>>(const BackendContext&)> create;
};

// Adds a backend. Returns true, so that it can initialise a namespace-scope variable in the backend's source. A second
// backend of the same name is a programming error and ends the process.
bool RegisterBackend(BackendInfo info);

// The names of the backends that are linked in, sorted.
std::vector<std::string> LinkedBackends();

// The linked backend with this name. NotFound, listing the linked backends: it is not linked.
absl::StatusOr<BackendInfo> FindBackend(absl::string_view name);

// For each device type, the backends that may serve it, the most preferred first.
struct BackendCandidates {
  bool is_auto = false;  // true: the best that can serve the group; false: the only one for each device type
  std::map<c10::DeviceType, std::vector<BackendInfo>> by_device;
};

// Parses `spec`, in PyTorch's three forms: "auto" (all linked backends, for each device type that the program can use),
// "gloo" (one backend for all its device types) and "cpu:gloo,cuda:nccl". NotFound, listing the linked backends: a name
// is not linked. InvalidArgument: the backend does not serve a device type, or the spec has another form.
absl::StatusOr<BackendCandidates> ParseBackendSpec(absl::string_view spec);

// The backends of this program that the ranks cannot use together, with the reason: {"shm", "rank 1 has not linked
// it"}.
using UnavailableBackends = std::map<std::string, std::string>;

// The chosen backend of a device type, and the reasons against the others.
struct BackendChoice {
  struct PassedOver {
    std::string name;
    std::string reason;
  };

  BackendInfo backend;
  std::vector<PassedOver> passed_over;      // preferred, but they cannot serve the group
  std::vector<std::string> less_preferred;  // not considered, since a preferred one can serve it
};

// Chooses the backend for each device type in the group that `context` describes (its store is not used). For "auto" it
// is the first usable one that is not in `unavailable`. Every rank that passes the same spec gets the same result.
// FailedPrecondition, with the reason for each candidate: no candidate can serve the group.
absl::StatusOr<std::map<c10::DeviceType, BackendChoice>> ChooseBackends(const BackendCandidates& candidates,
                                                                        const UnavailableBackends& unavailable,
                                                                        const BackendContext& context);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_BACKEND_H_
