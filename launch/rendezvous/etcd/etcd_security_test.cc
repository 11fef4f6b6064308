#include <stdlib.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_job.h"
#include "lockstep/launch/testing/processes.h"
#include "lockstep/launch/testing/rendezvous_job.h"

namespace lockstep::launch::etcd {
namespace {

using Agent = std::unique_ptr<Rendezvous>;
using launch::testing::AwaitError;
using launch::testing::AwaitLead;
using launch::testing::AwaitTexts;
using launch::testing::Texts;
using testing::EtcdCluster;
using testing::EtcdClusterOptions;
using testing::JoinAs;
using testing::NewJobOptions;

// Certificates and a cluster of one member with TLS, and with users if EnableUsers() is called.
template <typename Test>
class WithSecuredEtcd : public Test {
 protected:
  void SetUp() override {
    MakeAuthority("ca");
    MakeAuthority("other");
    MakeCertificate("server");
    MakeCertificate("client");
    EtcdClusterOptions options;
    options.members = 1;
    options.ca = pem_ + "ca.pem";
    options.cert = pem_ + "server.pem";
    options.key = pem_ + "server.key";
    absl::StatusOr<std::unique_ptr<EtcdCluster>> cluster = EtcdCluster::Start(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    options_ = NewJobOptions(*cluster_);
    options_.ca = pem_ + "ca.pem";
    options_.cert = pem_ + "client.pem";
    options_.key = pem_ + "client.key";
  }

  void Run(const std::string& command) {
    const std::string script = absl::StrCat("cd ", pem_, " && (", command, ") > log 2>&1");
    ASSERT_EQ(system(script.c_str()), 0) << launch::testing::ReadFile(pem_ + "log");
  }

  void MakeAuthority(const std::string& name) {
    Run(absl::StrCat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /O=",
                     name, " -keyout ", name, ".key -out ", name, ".pem"));
  }

  // Without a name in it: etcd would take the name for a user.
  void MakeCertificate(const std::string& name) {
    Run(absl::StrCat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=test -keyout ", name,
                     ".key -out ", name, ".csr && echo subjectAltName=IP:127.0.0.1 > names && openssl x509 -req -in ",
                     name, ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out ", name, ".pem"));
  }

  void Call(const std::string& path, const std::string& json) {
    const auto answer = cluster_->Call(0, path, json);
    ASSERT_TRUE(answer.ok()) << path << ": " << answer.status();
  }

  // "launch" may use the keys of jobs, and "other" may use none.
  void EnableUsers() {
    for (const std::string name : {"root", "launch", "other"}) {
      Call("auth/user/add", absl::StrCat(R"({"name": ")", name, R"(", "password": "password of )", name, R"("})"));
      Call("auth/role/add", absl::StrCat(R"({"name": ")", name, R"("})"));
      Call("auth/user/grant", absl::StrCat(R"({"user": ")", name, R"(", "role": ")", name, R"("})"));
    }
    Call("auth/role/grant", absl::StrCat(R"({"name": "launch", "perm": {"permType": "READWRITE", "key": ")",
                                         absl::Base64Escape("/lockstep/launch/"), R"(", "range_end": ")",
                                         absl::Base64Escape("/lockstep/launch0"), R"("}})"));
    Call("auth/enable", "{}");
  }

  absl::Status ErrorOfUser(const std::string& user, const std::string& password) {
    EtcdOptions options = options_;
    options.user = user;
    options.password = password;
    return AwaitError(JoinAs(options, "x").get());
  }

  const std::string pem_ = launch::testing::NewFolder();  // where the files in PEM format are
  std::unique_ptr<EtcdCluster> cluster_;
  EtcdOptions options_;
};

using SecuredEtcd = WithSecuredEtcd<::testing::Test>;

TEST_F(SecuredEtcd, AgentsWithCertificatesMeet) {
  const Agent a = JoinAs(options_, "a");
  ASSERT_TRUE(AwaitLead(a.get())) << a->Look().status;
  const Agent b = JoinAs(options_, "b");
  b->Post("b");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "b"}}), (Texts{{"b", "b"}}));
}

TEST_F(SecuredEtcd, AnotherAuthorityIsAnErrorAtOnceAndNoCertificateIsUnavailable) {
  options_.timeout = options_.join_timeout = absl::Seconds(3);
  EtcdOptions other_authority = options_, no_certificate = options_;
  other_authority.ca = pem_ + "other.pem";
  no_certificate.cert = no_certificate.key = "";
  const Agent a = JoinAs(other_authority, "a"), b = JoinAs(no_certificate, "b");
  const absl::Status status = AwaitError(a.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "SSL certificate")) << status;
  EXPECT_EQ(AwaitError(b.get()).code(), absl::StatusCode::kUnavailable) << b->Look().status;
}

TEST_F(SecuredEtcd, AgentsWithAPasswordMeetAndRenewTheirTokens) {
  EnableUsers();
  options_.user = "launch";
  options_.password = "password of launch";
  options_.ttl = absl::Seconds(5);
  const Agent a = JoinAs(options_, "a");
  ASSERT_TRUE(AwaitLead(a.get())) << a->Look().status;
  const Agent b = JoinAs(options_, "b");
  b->Post("before");
  ASSERT_EQ(AwaitTexts(a.get(), {{"b", "before"}}).size(), 1);
  // A member forgets its tokens.
  ASSERT_EQ(cluster_->Restart(0), absl::OkStatus());
  b->Post("after");
  EXPECT_EQ(AwaitTexts(a.get(), {{"b", "after"}}), (Texts{{"b", "after"}})) << a->Look().status << b->Look().status;
  b->Leave(absl::Seconds(10));
  EXPECT_EQ(AwaitTexts(a.get(), {}), Texts());
}

TEST_F(SecuredEtcd, AUserWhoMayNotIsRefused) {
  EnableUsers();
  const absl::Status wrong_password = ErrorOfUser("launch", "wrong");
  EXPECT_EQ(wrong_password.code(), absl::StatusCode::kPermissionDenied) << wrong_password;
  EXPECT_TRUE(absl::StrContains(wrong_password.message(), "user \"launch\"")) << wrong_password;
  EXPECT_TRUE(absl::StrContains(wrong_password.message(), cluster_->endpoints()[0])) << wrong_password;
  EXPECT_EQ(ErrorOfUser("other", "password of other").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(absl::IsUnavailable(ErrorOfUser("", "")));
}

// Tests the same settings by the flags of the program.
class LaunchersAtSecuredEtcd : public WithSecuredEtcd<launch::testing::NodesTest> {
 protected:
  std::string Tls(const std::string& ca) const {
    return absl::StrCat("cacert=", ca, ",cert=", options_.cert, ",key=", options_.key, ",");
  }

  void StartNode(const std::string& name, const std::string& conf) {
    Start(name, {"--nnodes=2", "--rdzv_backend=etcd-v3", absl::StrCat("--rdzv_endpoint=", cluster_->endpoints()[0]),
                 absl::StrCat("--rdzv_conf=", conf), "sh", "-c", "echo $WORLD_SIZE"});
  }
};

TEST_F(LaunchersAtSecuredEtcd, MeetIfTheyHaveTheAuthorityAndThePassword) {
  EnableUsers();
  const std::string user = "user=launch,password=";
  StartNode("a", absl::StrCat(Tls(options_.ca), user, "password of launch"));
  StartNode("b", absl::StrCat(Tls(options_.ca), user, "password of launch"));
  StartNode("wrong_password", absl::StrCat(Tls(options_.ca), user, "wrong"));
  StartNode("no_password", Tls(options_.ca));
  StartNode("other_authority", absl::StrCat(Tls(pem_ + "other.pem"), user, "password of launch"));
  StartNode("no_authority", absl::StrCat("cert=", options_.cert, ",key=", options_.key));
  StartNode("no_file", absl::StrCat(Tls(pem_ + "nothing.pem"), user, "password of launch"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), "2\n");
  }
  const std::string etcd = absl::StrCat("etcd ", cluster_->endpoints()[0], ": ");
  const auto expect_error = [&](const std::string& name, const std::string& error) {
    EXPECT_NE(Wait(name), 0) << name;
    EXPECT_THAT(Err(name), ::testing::HasSubstr(error));
    EXPECT_EQ(Out(name), "");
  };
  expect_error("wrong_password", absl::StrCat("user \"launch\": ", etcd, "etcdserver: authentication failed"));
  expect_error("no_password", absl::StrCat(etcd, "etcdserver: user name is empty"));
  expect_error("other_authority", absl::StrCat(etcd, "SSL certificate problem"));
  expect_error("no_authority", absl::StrCat(etcd, "SSL certificate problem"));
  expect_error("no_file", "nothing.pem");
}

}  // namespace
}  // namespace lockstep::launch::etcd
