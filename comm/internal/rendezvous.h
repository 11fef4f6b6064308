#ifndef LOCKSTEP_COMM_INTERNAL_RENDEZVOUS_H_
#define LOCKSTEP_COMM_INTERNAL_RENDEZVOUS_H_

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/rank_environment.h"

namespace lockstep::comm::internal {

struct RendezvousOptions {
  std::string init_method;  // "env://", "tcp://host:port" or "file:///path"
  int rank = 0;
  int world_size = 1;
  absl::Duration timeout;
  RankEnvironment environment;  // of which env:// takes the address and port
};

// Where the ranks of a group meet.
struct Rendezvous {
  c10::intrusive_ptr<c10d::Store>
      server;  // on the rank that serves the store; must live as long as the group, and goes last
  c10::intrusive_ptr<c10d::Store> store;
  std::string master_addr;  // empty for a file
};

// Opens the store. Rank 0 serves it on the interface that the address names and no other, unless a launcher's agent
// does. InvalidArgument for a bad init_method, FailedPrecondition for a port in use, Unavailable or DeadlineExceeded if
// nobody answers.
absl::StatusOr<Rendezvous> OpenStore(const RendezvousOptions& options);

// Blocks until every rank has called this on `rendezvous`. AlreadyExists if another process has taken this rank's
// number, InvalidArgument if another rank was given another world size (both end the waiting of all ranks),
// DeadlineExceeded naming the ranks that are missing.
absl::Status MeetAllRanks(const Rendezvous& rendezvous, const RendezvousOptions& options);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_RENDEZVOUS_H_
