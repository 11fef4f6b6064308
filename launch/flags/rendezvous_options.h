// How the nodes of a job find each other, as the command line says it.

#ifndef LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_OPTIONS_H_
#define LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::launch {

struct HostAndPort {
  std::string host;
  int port = 0;
};

struct RendezvousOptions {
  enum class Backend {
    kStatic,  // they do not: every node gets its rank and rank 0's address
    kTcp,     // the node at the endpoint serves the others
    kEtcd,    // by the etcd servers at the endpoints
  };

  Backend backend = Backend::kStatic;
  bool meets_others = false;  // whether the launcher joins a rendezvous, which one node may do too
  std::vector<HostAndPort> endpoints;
  int min_nodes = 1, max_nodes = 1;
  std::optional<int> node_rank;
  std::string local_addr;  // of this node; "": the one from which it reaches the endpoint

  // The parameters of --rdzv_conf.
  absl::Duration join_timeout = absl::Minutes(10);
  absl::Duration last_call_timeout = absl::Seconds(30);
  absl::Duration time_to_live = absl::ZeroDuration();  // 0: the backend's own
  std::optional<bool> is_host;
  bool same_program = true;
  std::string ca_file, cert_file, key_file, user, password;  // etcd
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_RENDEZVOUS_OPTIONS_H_
