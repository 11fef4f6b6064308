#include "lockstep/elastic/chaos/internal/meeting.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/process/process.h"
#include "nlohmann/json.hpp"

namespace lockstep::elastic::chaos::internal {
namespace {

constexpr absl::string_view kJob = "chaos", kKeys = "/lockstep/launch/chaos/";
// After so many seconds without a word a host is lost. It leaves the others time within --hang_seconds.
constexpr absl::string_view kConf = "last_call_timeout=20,ttl=3";
// Host 0 is 127.0.0.1, and so on. Linux has all these addresses.
constexpr absl::string_view kAddressBegin = "127.0.0.";
constexpr int kMostHosts = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Meeting>> Meeting::Start(Rendezvous rendezvous, const std::string& folder,
                                                        const comm::testing::NetworkHosts* network) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->network_ = network;
  if (rendezvous == Rendezvous::kTcp) {
    LOCKSTEP_ASSIGN_OR_RETURN(meeting->port_, launch::FreePort());
    return meeting;
  }
  const absl::Status found = launch::FindProgram("etcd").status();
  if (!found.ok()) {
    return absl::NotFoundError(absl::StrCat(found.message(), "; install etcd-server, or use --rdzv=tcp"));
  }
  launch::etcd::testing::EtcdClusterOptions options;
  options.members = 1;
  options.folder = folder;
  options.hosts = network;
  LOCKSTEP_ASSIGN_OR_RETURN(meeting->etcd_, launch::etcd::testing::EtcdCluster::Start(options));
  return meeting;
}

std::string Meeting::AddressOf(int number) const {
  return network_ ? network_->Address(number + 1) : absl::StrCat(kAddressBegin, number + 1);
}

std::vector<std::string> Meeting::Arguments(int number, int hosts) const {
  std::vector<std::string> arguments = {absl::StrCat("--nnodes=1:", hosts), absl::StrCat("--rdzv_id=", kJob),
                                        absl::StrCat("--local_addr=", AddressOf(number))};
  if (etcd_) {
    arguments.push_back("--rdzv_backend=etcd-v3");
    arguments.push_back(absl::StrCat("--rdzv_endpoint=", absl::StripPrefix(etcd_->endpoints()[0], "http://")));
    arguments.push_back(absl::StrCat("--rdzv_conf=", kConf));
  } else {
    arguments.push_back("--rdzv_backend=tcp");
    arguments.push_back(absl::StrCat("--rdzv_endpoint=", AddressOf(0), ":", port_));
    arguments.push_back(absl::StrCat("--rdzv_conf=", kConf, ",is_host=", number == 0 ? "true" : "false"));
  }
  return arguments;
}

// The text of an agent, which follows a line with a signature.
absl::StatusOr<std::string> Meeting::ValueOf(const std::string& key) {
  const std::string request = absl::StrCat(R"({"key": ")", absl::Base64Escape(absl::StrCat(kKeys, key)), R"("})");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string answer, etcd_->Call(0, "kv/range", request));
  const auto json = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  std::string value;
  if (!json.is_object() || !json.contains("kvs") || json["kvs"].size() != 1 ||
      !absl::Base64Unescape(json["kvs"][0].value("value", ""), &value)) {
    return absl::UnavailableError(absl::StrCat("etcd has no key ", kKeys, key));
  }
  return value.substr(value.find('\n') + 1);
}

absl::StatusOr<int> Meeting::Leader() {
  if (!etcd_) return 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string agent, ValueOf("leader"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ValueOf(absl::StrCat("agents/", agent)));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string address = json.is_object() ? json.value("address", "") : "";
  for (int number = 0; number < kMostHosts; ++number) {
    if (address == AddressOf(number)) return number;
  }
  return absl::InternalError(absl::StrCat("etcd: the agent that leads has no address that chaos gave: ", text));
}

}  // namespace lockstep::elastic::chaos::internal
