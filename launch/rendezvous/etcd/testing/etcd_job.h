// A job whose agents meet at an etcd cluster of a test.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_JOB_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_JOB_H_

#include <memory>
#include <string>

#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/testing/rendezvous_job.h"

namespace lockstep::launch::etcd::testing {

// Options with the cluster's endpoints and a job id that no other job of this process has.
EtcdOptions NewJobOptions(const EtcdCluster& cluster);

// Join() with another agent id. Null, and a failure of the test, if that fails.
std::unique_ptr<Rendezvous> JoinAs(EtcdOptions options, const std::string& agent_id);

class EtcdJob : public launch::testing::RendezvousJob {
 public:
  explicit EtcdJob(const EtcdCluster& cluster) : options_(NewJobOptions(cluster)) {}

  std::unique_ptr<Rendezvous> Join(const std::string& id, const std::string& secret) override;

 private:
  EtcdOptions options_;
};

}  // namespace lockstep::launch::etcd::testing

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_JOB_H_
