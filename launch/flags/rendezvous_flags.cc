#include "lockstep/launch/flags/rendezvous_flags.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/flags/endpoint_flag.h"
#include "lockstep/launch/flags/flag_values.h"

namespace lockstep::launch {
namespace {

using Backend = RendezvousOptions::Backend;

constexpr int kTcpPort = 29400;  // torchrun's
constexpr int kEtcdPort = 2379;  // etcd's for clients

// Removes the scheme of an endpoint of etcd, which may be a URL, where %25 stands for a %. Its scheme must be the one
// that the parameters mean.
absl::StatusOr<std::string> WithoutScheme(const GivenFlag& flag, absl::string_view text,
                                          const RendezvousOptions& nodes) {
  const bool has_scheme = absl::StrContains(text, "://");
  const bool is_secure = !nodes.ca_file.empty() || !nodes.cert_file.empty();
  if (absl::ConsumePrefix(&text, "https://") ? !is_secure : absl::ConsumePrefix(&text, "http://") && is_secure) {
    return Expected(flag, is_secure ? "https://, since --rdzv_conf has cacert or cert"
                                    : "http://, unless --rdzv_conf has cacert or cert");
  }
  absl::ConsumeSuffix(&text, "/");
  return has_scheme ? absl::StrReplaceAll(text, {{"%25", "%"}}) : std::string(text);
}

absl::Status ReadEndpoints(const GivenFlag& flag, int default_port, RendezvousOptions* nodes) {
  for (const absl::string_view part : absl::StrSplit(flag.value, ',')) {
    std::string text(absl::StripAsciiWhitespace(part));
    if (nodes->backend == Backend::kEtcd) {
      LOCKSTEP_ASSIGN_OR_RETURN(text, WithoutScheme(flag, text, *nodes));
    }
    absl::StatusOr<HostAndPort> endpoint = ReadEndpoint(text, default_port);
    if (!endpoint.ok()) return Expected(flag, endpoint.status().message());
    nodes->endpoints.push_back(*std::move(endpoint));
  }
  return absl::OkStatus();
}

// The parameters of --rdzv_conf.
absl::Status ReadParameter(const GivenFlag& flag, absl::string_view name, const std::string& text, std::string* value) {
  *value = text;
  return absl::OkStatus();
}

absl::Status ReadParameter(const GivenFlag& flag, absl::string_view name, const std::string& text,
                           absl::Duration* value) {
  double seconds;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0 && seconds <= 1e9)) {
    return Expected(flag, absl::StrCat(name, " in seconds, more than 0"));
  }
  *value = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status ReadParameter(const GivenFlag& flag, absl::string_view name, const std::string& text, bool* value) {
  if (absl::SimpleAtob(text, value)) return absl::OkStatus();
  return Expected(flag, absl::StrCat(name, "=true or ", name, "=false"));
}

absl::Status ReadParameter(const GivenFlag& flag, absl::string_view name, const std::string& text,
                           std::optional<bool>* value) {
  return ReadParameter(flag, name, text, &value->emplace());
}

struct Parameter {
  const char* name;
  // Null for torchrun's parameters of other rendezvous, or of its own way to do this.
  absl::Status (*set)(const GivenFlag& flag, absl::string_view name, const std::string& text, RendezvousOptions* to);
};

template <auto option>
absl::Status SetParameter(const GivenFlag& flag, absl::string_view name, const std::string& text,
                          RendezvousOptions* to) {
  return ReadParameter(flag, name, text, &(to->*option));
}

constexpr Parameter kParameters[] = {
    {"is_host", SetParameter<&RendezvousOptions::is_host>},
    {"same_program", SetParameter<&RendezvousOptions::same_program>},
    {"join_timeout", SetParameter<&RendezvousOptions::join_timeout>},
    {"last_call_timeout", SetParameter<&RendezvousOptions::last_call_timeout>},
    {"ttl", SetParameter<&RendezvousOptions::time_to_live>},
    {"cacert", SetParameter<&RendezvousOptions::ca_file>},
    {"cert", SetParameter<&RendezvousOptions::cert_file>},
    {"key", SetParameter<&RendezvousOptions::key_file>},
    {"user", SetParameter<&RendezvousOptions::user>},
    {"password", SetParameter<&RendezvousOptions::password>},
    {"close_timeout", nullptr},
    {"heartbeat_timeout", nullptr},
    {"keep_alive_interval", nullptr},
    {"keep_alive_max_attempt", nullptr},
    {"read_timeout", nullptr},
    {"rank", nullptr},
    {"store_type", nullptr},
    {"timeout", nullptr},
    {"use_libuv", nullptr},
    {"protocol", nullptr},
    {"max_incremental_join", nullptr},
    {"min_nodes", nullptr},
};

absl::Status SetParameter(const GivenFlag& flag, const std::string& name, const std::string& text,
                          RendezvousOptions* to) {
  std::vector<std::string> names;  // of those with an effect
  for (const Parameter& parameter : kParameters) {
    if (name == parameter.name) return parameter.set ? parameter.set(flag, name, text, to) : absl::OkStatus();
    if (parameter.set) names.emplace_back(parameter.name);
  }
  const std::optional<std::string> nearest = NearestName(name, names);
  return absl::InvalidArgumentError(absl::StrCat(flag.source, " has no parameter ", Printable(name),
                                                 nearest ? absl::StrCat("; did you mean ", *nearest, "?") : ""));
}

// The nodes do not talk to each other.
absl::Status UseStatic(const GivenFlags& given, const RendezvousOptions& nodes, LaunchOptions* options) {
  if (nodes.min_nodes != nodes.max_nodes) {
    return Expected(*Find(given, "nnodes"), "one number, unless there is --rdzv_backend=tcp or etcd-v3");
  }
  options->nnodes = nodes.max_nodes;
  options->node_rank = nodes.node_rank.value_or(0);
  if (!nodes.endpoints.empty()) {
    options->master_addr = nodes.endpoints[0].host;
    options->master_port = nodes.endpoints[0].port;
  }
  if (const GivenFlag* flag = Find(given, "local_addr")) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag->source, " has no effect on a static rendezvous: leave it out, every node gets --master_addr"));
  }
  return absl::OkStatus();
}

// Returns whether other launchers can come to this one. torchrun's scripts for one node say localhost:0.
bool MeetsOthers(const GivenFlags& given, const RendezvousOptions& nodes) {
  if (nodes.max_nodes > 1) return true;
  if (Find(given, "standalone") || nodes.endpoints.empty()) return false;
  return nodes.backend != Backend::kTcp || nodes.endpoints[0].port != 0;
}

absl::Status CheckMeeting(const GivenFlags& given, const RendezvousOptions& nodes) {
  if (nodes.endpoints.empty()) {
    return absl::InvalidArgumentError(
        nodes.backend == Backend::kTcp
            ? "--rdzv_backend=tcp needs --rdzv_endpoint=HOST:PORT, the same on every node; the launcher on HOST serves"
            : "--rdzv_backend=etcd-v3 needs --rdzv_endpoint=HOST:PORT, a server of etcd, or several with commas "
              "between");
  }
  if (nodes.backend == Backend::kTcp && nodes.endpoints.size() > 1) {
    return absl::InvalidArgumentError("--rdzv_backend=tcp has one endpoint, but --rdzv_endpoint names several");
  }
  for (const HostAndPort& endpoint : nodes.endpoints) {
    if (endpoint.port != 0) continue;
    return Expected(*Find(given, "rdzv_endpoint"),
                    nodes.backend == Backend::kTcp
                        ? "a port that is the same on every node; port 0 is a free one, which other nodes cannot know"
                        : "the port of a server of etcd, which is not 0");
  }
  return absl::OkStatus();
}

absl::Status CheckNodeRank(const RendezvousOptions& nodes) {
  if (!nodes.node_rank || (*nodes.node_rank >= 0 && *nodes.node_rank < nodes.max_nodes)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("node_rank must be from 0 to nnodes - 1 = ", nodes.max_nodes - 1, ", but is ", *nodes.node_rank));
}

// torchrun takes these flags too, and uses them with a static rendezvous only.
void NoticeMaster(const GivenFlags& given, std::vector<std::string>* notices) {
  std::vector<std::string> unused;
  for (const char* name : {"master_addr", "master_port"}) {
    if (const GivenFlag* flag = Find(given, name)) {
      unused.push_back(absl::StrCat(flag->source, "=", Printable(flag->value)));
    }
  }
  if (unused.empty()) return;
  notices->push_back(absl::StrCat(absl::StrJoin(unused, " and "), unused.size() > 1 ? " are" : " is",
                                  " not used: with --rdzv_backend=tcp or etcd-v3 the launchers choose the host and the "
                                  "port of rank 0 at each start"));
}

// torchrun's --standalone overrides an endpoint too.
void NoticeStandalone(const GivenFlags& given, std::vector<std::string>* notices) {
  const GivenFlag *standalone = Find(given, "standalone"), *endpoint = Find(given, "rdzv_endpoint");
  if (!standalone || !endpoint) return;
  notices->push_back(absl::StrCat(endpoint->source, "=", Printable(endpoint->value), " is not used, since ",
                                  standalone->source, " is given"));
}

void RecordC10d(const GivenFlags& given, std::vector<std::string>* notices) {
  const GivenFlag* backend = Find(given, "rdzv_backend");
  if (backend->value != "c10d") return;
  notices->push_back(absl::StrCat(backend->source, "=c10d is taken as tcp: a torchrun cannot meet launchers there"));
}

}  // namespace

std::vector<std::string> RendezvousParameters() {
  std::vector<std::string> names;
  for (const Parameter& parameter : kParameters) names.emplace_back(parameter.name);
  return names;
}

absl::Status SetBackend(const GivenFlag& flag, Settings* to) {
  Backend& backend = to->rendezvous.backend;
  if (flag.value == "static") {
    backend = Backend::kStatic;
  } else if (flag.value == "tcp" || flag.value == "c10d") {
    backend = Backend::kTcp;
  } else if (flag.value == "etcd-v3") {
    backend = Backend::kEtcd;
  } else if (flag.value == "etcd" || flag.value == "etcd-v2") {
    return Expected(flag, "etcd-v3; etcd no longer has the interface of version 2");
  } else {
    return Expected(flag, "static, tcp (torchrun's c10d) or etcd-v3");
  }
  return absl::OkStatus();
}

absl::Status SetNodes(const GivenFlag& flag, Settings* to) {
  RendezvousOptions& nodes = to->rendezvous;
  const std::vector<std::string> range = absl::StrSplit(flag.value, ':');
  if (range.size() > 2 || !absl::SimpleAtoi(range.front(), &nodes.min_nodes) ||
      !absl::SimpleAtoi(range.back(), &nodes.max_nodes)) {
    return Expected(flag, "a whole number, or two as in 1:4");
  }
  if (nodes.min_nodes < 1 || nodes.max_nodes < nodes.min_nodes) {
    return Expected(flag, "at least 1 node, and at most as many before the colon as after it");
  }
  return absl::OkStatus();
}

// "join_timeout=60,last_call_timeout=5".
absl::Status SetParameters(const GivenFlag& flag, Settings* to) {
  for (const absl::string_view text : absl::StrSplit(flag.value, ',', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> parameter = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parameter.first));
    if (text.find('=') == absl::string_view::npos) return Expected(flag, "name=value,name=value");
    LOCKSTEP_RETURN_IF_ERROR(SetParameter(flag, name, parameter.second, &to->rendezvous));
  }
  return absl::OkStatus();
}

absl::Status ResolveRendezvous(const GivenFlags& given, Settings* to, std::vector<std::string>* notices) {
  RendezvousOptions& nodes = to->rendezvous;
  if (const GivenFlag* flag = Find(given, "rdzv_endpoint")) {
    const int port = nodes.backend == Backend::kEtcd ? kEtcdPort : nodes.backend == Backend::kTcp ? kTcpPort : -1;
    LOCKSTEP_RETURN_IF_ERROR(ReadEndpoints(*flag, port, &nodes));
  }
  if (nodes.backend == Backend::kStatic) return UseStatic(given, nodes, &to->options);
  LOCKSTEP_RETURN_IF_ERROR(CheckNodeRank(nodes));
  nodes.meets_others = MeetsOthers(given, nodes);
  if (!nodes.meets_others) {
    NoticeStandalone(given, notices);
    return absl::OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckMeeting(given, nodes));
  RecordC10d(given, notices);
  NoticeMaster(given, notices);
  return absl::OkStatus();
}

}  // namespace lockstep::launch
