#include "lockstep/launch/rendezvous/etcd/job_keys.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lockstep/launch/rendezvous/etcd/signed_text.h"

namespace lockstep::launch::etcd {
namespace {

using Target = Compare::Target;
using Kind = Operation::Kind;

// A slash in the id would make keys of one job look like keys of another one.
std::string Prefix(const std::string& job_id) {
  return absl::StrCat("/lockstep/launch/", absl::StrReplaceAll(job_id, {{"%", "%25"}, {"/", "%2F"}}), "/");
}

}  // namespace

JobKeys::JobKeys(const std::string& job_id, const std::string& secret)
    : job_id_(job_id),
      secret_(secret),
      all_(Prefix(job_id)),
      agents_(all_ + "agents/"),
      leader_(all_ + "leader"),
      decision_(all_ + "decision") {}

Operation JobKeys::Put(const std::string& key, const std::string& text, int64_t lease) const {
  return {Kind::kPut, key, SignedText(secret_, job_id_, key, text), lease};
}

Transaction JobKeys::BeginJob(const std::string& agent_id, int64_t lease) const {
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_, 0, ""},
                          {Target::kCreateRevision, agents_, 0, EndOf(agents_)}};
  transaction.success = {Put(leader_, agent_id, lease), {Kind::kDelete, decision_, ""}};
  return transaction;
}

Transaction JobKeys::Campaign(const std::string& agent_id, int64_t lease) const {
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_, 0, ""}};
  transaction.success = {Put(leader_, agent_id, lease), {Kind::kRange, leader_, ""}};
  transaction.failure = {{Kind::kRange, leader_, ""}};
  return transaction;
}

Transaction JobKeys::WritePost(const std::string& agent_id, const std::string& text, int64_t lease,
                               int64_t revision) const {
  Transaction transaction;
  transaction.compares = {{Target::kModRevision, agent(agent_id), revision, ""}};
  transaction.success = {Put(agent(agent_id), text, lease)};
  transaction.failure = {{Kind::kRange, agent(agent_id), ""}};
  return transaction;
}

Transaction JobKeys::WriteDecision(const std::string& text, int64_t lease, int64_t term, int64_t revision) const {
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_, term, ""},
                          {Target::kModRevision, decision_, revision, ""}};
  transaction.success = {Put(decision_, text, lease)};
  transaction.failure = {{Kind::kRange, leader_, ""}, {Kind::kRange, decision_, ""}};
  return transaction;
}

absl::StatusOr<std::string> JobKeys::TextOf(const KeyValue& kv) const {
  return VerifiedText(secret_, job_id_, kv.key, kv.value);
}

std::string EndOf(std::string prefix) {
  ++prefix.back();
  return prefix;
}

}  // namespace lockstep::launch::etcd
