// Where the launchers of a job's hosts meet: at an etcd that this program starts, or at the first launcher.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_MEETING_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_MEETING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"

namespace lockstep::elastic::chaos::internal {

enum class Rendezvous { kEtcd, kTcp };

class Meeting {
 public:
  // One etcd, with its data in `folder`, on ports that were free. It ends with the object. NotFound: there is no etcd.
  // With `network`, which must outlive the object, etcd is on its host 0, and host `number` of the job on the one after
  // it.
  static absl::StatusOr<std::unique_ptr<Meeting>> Start(Rendezvous rendezvous, const std::string& folder,
                                                        const comm::testing::NetworkHosts* network);

  // The arguments of the launcher of host `number` of `hosts`.
  std::vector<std::string> Arguments(int number, int hosts) const;

  // The address of a host of the job.
  std::string AddressOf(int number) const;

  // The host that must live, since it serves the others; -1: none.
  int spared() const { return etcd_ ? -1 : 0; }

  // The host whose launcher leads. Unavailable: none does just now.
  absl::StatusOr<int> Leader();

 private:
  Meeting() = default;
  absl::StatusOr<std::string> ValueOf(const std::string& key);

  const comm::testing::NetworkHosts* network_ = nullptr;
  std::unique_ptr<launch::etcd::testing::EtcdCluster> etcd_;
  int port_ = 0;  // at which host 0 serves the others, without etcd
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_MEETING_H_
