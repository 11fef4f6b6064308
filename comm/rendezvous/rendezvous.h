// Where the ranks of a group meet: the store that env://, tcp:// or file:// names.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_
#define LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/rank_environment.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"

namespace lockstep::comm::internal {

struct RendezvousOptions {
  std::string init_method;  // "env://", "tcp://host:port" or "file:///path"
  int rank = 0;
  int world_size = 1;
  absl::Duration timeout;
  RankEnvironment environment;             // of which env:// takes the address and port
  std::shared_ptr<WaitingNotice> waiting;  // says that the store cannot be reached; may be null
};

struct Rendezvous {
  // On the rank that serves the store; must live as long as the group, and go last.
  c10::intrusive_ptr<c10d::Store> server;
  // The keys are those that Python's init_process_group sees under "default_pg".
  c10::intrusive_ptr<c10d::Store> store;
  std::string master_addr;  // empty for a file
};

// Opens the store. Rank 0 serves it, on the interface that the address names and no other, unless a launcher's agent
// does; every rank is a client of it. Blocks for `timeout` at most (1 s at least). InvalidArgument for a bad
// init_method, NotFound for a host that is unknown to the end or a folder that does not exist, FailedPrecondition for a
// port in use, DeadlineExceeded if nobody answers, Unavailable if what answers is no store.
//
// After a restart by torchrun the ranks have keys of their own, since the agent's store still holds those of the
// attempt before. Python ranks of PyTorch 2.11 keep to the old keys: they can be met in the first attempt only.
absl::StatusOr<Rendezvous> OpenStore(const RendezvousOptions& options);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_RENDEZVOUS_H_
