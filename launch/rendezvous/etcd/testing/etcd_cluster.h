// Real etcd members for tests: on the loopback interface, or each on its own host.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_CLUSTER_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_CLUSTER_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/launch/rendezvous/etcd/http_client.h"

namespace lockstep::launch::etcd::testing {

struct EtcdClusterOptions {
  int members = 3;
  std::string folder;  // for their data, with a slash at its end. Empty: a new one in the test's temporary folder
  // Files in PEM format, for TLS with clients, whose certificates must be of the same authority. Empty: no TLS.
  std::string ca, cert, key;
  // Member i runs on host i, at etcd's usual ports. Null: all run on the loopback interface. Must outlive the cluster.
  const comm::testing::NetworkHosts* hosts = nullptr;
};

// The members end with the object, and with the thread that started them.
class EtcdCluster {
 public:
  // Returns when all members answer. Their ports are free ones.
  static absl::StatusOr<std::unique_ptr<EtcdCluster>> Start(const EtcdClusterOptions& options);
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // SIGKILL, and a start with the same data. Restart() returns when the member answers.
  void Kill(int member);
  absl::Status Restart(int member);
  // SIGSTOP: its connections stay open, and nothing answers.
  void Stop(int member);
  // SIGCONT, after Stop().
  void Continue(int member);

  // The member that leads the others.
  absl::StatusOr<int> Leader();

  // Posts JSON to the member's gateway, from the member's host: Call(0, "kv/compaction", R"({"revision": "7"})").
  // Returns the answer.
  absl::StatusOr<std::string> Call(int member, absl::string_view path, absl::string_view json);

 private:
  explicit EtcdCluster(const EtcdClusterOptions& options);
  void ChoosePorts();
  absl::Status StartMember(int member);
  absl::Status AwaitAnswer(int member);
  std::vector<std::string> Arguments(int member) const;
  absl::StatusOr<HttpReply> Post(HttpRequest request);

  const EtcdClusterOptions options_;
  const std::string folder_;
  std::unique_ptr<HttpClient> http_;
  std::vector<std::string> endpoints_, peers_;  // URLs
  std::vector<pid_t> pids_;                     // 0: not running
};

}  // namespace lockstep::launch::etcd::testing

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_TESTING_ETCD_CLUSTER_H_
