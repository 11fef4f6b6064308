#include "lockstep/launch/rendezvous/etcd/testing/etcd_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep::launch::etcd::testing {

EtcdOptions NewJobOptions(const EtcdCluster& cluster) {
  static int jobs = 0;
  EtcdOptions options;
  options.endpoints = cluster.endpoints();
  options.job_id = absl::StrCat("job ", ++jobs);
  options.ttl = absl::Seconds(2);
  return options;
}

std::unique_ptr<Rendezvous> JoinAs(EtcdOptions options, const std::string& agent_id) {
  options.agent_id = agent_id;
  absl::StatusOr<std::unique_ptr<Rendezvous>> agent = EtcdRendezvous::Join(options);
  EXPECT_TRUE(agent.ok()) << agent.status();
  return agent.ok() ? *std::move(agent) : nullptr;
}

std::unique_ptr<Rendezvous> EtcdJob::Join(const std::string& id, const std::string& secret) {
  options_.secret = secret;
  return JoinAs(options_, id);
}

}  // namespace lockstep::launch::etcd::testing
