// The tests of every rendezvous, over TCP. launch's own tests (launch/node/nodes_test.cc) have strangers and lost
// hosts.

#include "lockstep/launch/rendezvous/tcp/tcp_rendezvous.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "lockstep/base/crypto/job_secret.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/testing/rendezvous_suite.h"

namespace lockstep::launch::testing {
namespace {

class TcpJob : public RendezvousJob {
 public:
  std::unique_ptr<Rendezvous> Join(const std::string& id, const std::string& secret) override {
    TcpOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.agent_id = id;
    options.time_to_live = absl::Seconds(2);
    if (!secret.empty()) options.secret = *crypto::JobSecret::FromText(secret);
    absl::StatusOr<TcpJoined> joined = JoinTcp(options);
    EXPECT_TRUE(joined.ok()) << joined.status();
    return joined.ok() ? std::move(joined->rendezvous) : nullptr;
  }

 private:
  const int port_ = *FreePort();
};

INSTANTIATE_TEST_SUITE_P(Tcp, RendezvousTest, ::testing::Values([] { return std::make_unique<TcpJob>(); }));

}  // namespace
}  // namespace lockstep::launch::testing
