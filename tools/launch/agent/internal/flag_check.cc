#include "lockstep/tools/launch/agent/internal/flag_check.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::launch::internal {

FlagCheck::FlagCheck(std::string host, JobFlags flags) : host_(std::move(host)), flags_(std::move(flags)) {}

// A launcher of another version may have other flags.
const std::string& FlagCheck::Check(const Agents& agents) {
  if (agents.count(named_) != 0) return line_;
  named_.clear();
  line_.clear();
  for (const auto& [id, agent] : agents) {
    if (agent.flags == flags_ || agent.flags.size() != flags_.size()) continue;
    std::vector<std::string> theirs, ours;
    for (size_t i = 0; i < flags_.size(); ++i) {
      if (agent.flags[i] == flags_[i]) continue;
      theirs.push_back(agent.flags[i]);
      ours.push_back(flags_[i]);
    }
    named_ = id;
    line_ = absl::StrCat("host ", agent.host, " was started with ", absl::StrJoin(theirs, " "), ", but host ", host_,
                         ", which leads the job, with ", absl::StrJoin(ours, " "), ", which counts");
    break;
  }
  return line_;
}

}  // namespace lockstep::launch::internal
