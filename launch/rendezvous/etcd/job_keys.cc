#include "lockstep/launch/rendezvous/etcd/job_keys.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lockstep/launch/rendezvous/etcd/signed_text.h"

namespace lockstep::launch::etcd {
namespace {

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
  return {Operation::Kind::kPut, key, SignedText(secret_, job_id_, key, text), lease};
}

absl::StatusOr<std::string> JobKeys::TextOf(const KeyValue& kv) const {
  return VerifiedText(secret_, job_id_, kv.key, kv.value);
}

std::string EndOf(std::string prefix) {
  ++prefix.back();
  return prefix;
}

}  // namespace lockstep::launch::etcd
