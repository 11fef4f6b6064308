#include "lockstep/tools/launch/etcd/endpoint.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep::launch::etcd {
namespace {

std::string Url(const char* endpoint, bool is_secure = false) {
  const absl::StatusOr<std::string> url = EndpointUrl(**LoadCurl(), endpoint, is_secure);
  return url.ok() ? *url : std::string(url.status().message());
}

TEST(EndpointUrl, SchemeAndPortMayBeLeftOut) {
  EXPECT_EQ(Url("node1:4001"), "http://node1:4001");
  EXPECT_EQ(Url("node1"), "http://node1:2379");
  EXPECT_EQ(Url("node1", true), "https://node1:2379");
  EXPECT_EQ(Url("https://node1:4001/"), "https://node1:4001");
  EXPECT_EQ(Url("[::1]:4001"), "http://[::1]:4001");
  EXPECT_EQ(Url("http://[fe80::1%25eth0]:4001"), "http://[fe80::1%25eth0]:4001");
  EXPECT_EQ(Url("10.0.0.1:4001"), "http://10.0.0.1:4001");
}

TEST(EndpointUrl, AnythingElseIsAnErrorThatNamesTheEndpoint) {
  const std::string expected = "; expected host:port, http://host:port or https://host:port";
  EXPECT_EQ(Url("ftp://node1"), "etcd endpoint \"ftp://node1\": the scheme is ftp" + expected);
  EXPECT_EQ(Url("http://node1/v2"), "etcd endpoint \"http://node1/v2\": it has the path /v2" + expected);
  EXPECT_EQ(Url("http://me@node1"),
            "etcd endpoint \"http://me@node1\": it has a user, a query or a fragment" + expected);
  for (const char* endpoint : {"", "http://", "node1:port", "node1:123456", "node 1:2379"}) {
    EXPECT_NE(Url(endpoint).find(expected), std::string::npos) << endpoint << " is " << Url(endpoint);
  }
}

}  // namespace
}  // namespace lockstep::launch::etcd
