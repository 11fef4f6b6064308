// Opens the store of env://, tcp:// or file://, where the ranks of a group meet.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_
#define LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"

namespace lockstep::comm {

struct RendezvousOptions {
  std::string init_method;  // "env://", "tcp://host:port" or "file:///path"
  int rank = 0;
  int world_size = 1;
  absl::Duration timeout;
  RankEnvironment environment;                           // address and port for env://
  std::shared_ptr<WaitingNotice> waiting;                // reports that the store cannot be reached; may be null
  std::function<absl::Status()> interruption = nullptr;  // InitOptions::interruption
};

struct Rendezvous {
  // On the rank that serves the store. Must live as long as the group, and must be destroyed last.
  c10::intrusive_ptr<c10d::Store> server;
  // Has the keys that Python's init_process_group sees under "default_pg".
  c10::intrusive_ptr<c10d::Store> store;
  std::string master_addr;  // empty for a file
};

// Opens the store. Every rank is a client of it. Rank 0 serves it, only on the interface of the address, unless a
// launcher's agent serves it. Blocks for at most `timeout` (at least 1 s). InvalidArgument: bad init_method. NotFound:
// the host is still unknown at the end, or the folder does not exist. FailedPrecondition: the port is in use.
// DeadlineExceeded: nothing answers. Unavailable: the server is not a store.
//
// After a restart by torchrun the ranks use new keys, since the agent's store still holds the keys of the
// previous attempt. Python ranks of PyTorch 2.11 reuse the old keys, so they can be met only in the first attempt.
absl::StatusOr<Rendezvous> OpenStore(const RendezvousOptions& options);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_
