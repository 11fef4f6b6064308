#include "lockstep/launch/job/flag_check.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

constexpr size_t kLongestCommand = 200;  // of which a message shows so much
constexpr size_t kCommonStart = 40;      // of what is the same in both commands, where not all of them can be shown
constexpr size_t kHashDigits = 12;

bool IsFile(const JobProgram& program, size_t word) { return word == 0 || word == program.script; }

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string HashText(const std::string& hash) { return hash.substr(0, kHashDigits); }

// Returns `command` if both are short. Otherwise the part of it that begins shortly before their first difference.
std::string Excerpt(const std::string& command, const std::string& other) {
  if (command.size() <= kLongestCommand && other.size() <= kLongestCommand) return Printable(command);
  const auto differ = std::mismatch(command.begin(), command.end(), other.begin(), other.end());
  const auto same = static_cast<size_t>(differ.first - command.begin());
  const size_t begin = same > kCommonStart ? same - kCommonStart : 0;
  return absl::StrCat(begin > 0 ? "..." : "", Printable(command.substr(begin, kLongestCommand)),
                      begin + kLongestCommand < command.size() ? "..." : "");
}

bool HaveSameWords(const JobProgram& a, const JobProgram& b) {
  if (a.words.size() != b.words.size()) return false;
  for (size_t i = 0; i < a.words.size(); ++i) {
    const bool are_files = IsFile(a, i) && IsFile(b, i);
    if (are_files ? NameOf(a.words[i]) != NameOf(b.words[i]) : a.words[i] != b.words[i]) return false;
  }
  return true;
}

bool Differ(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

std::string FileDifference(const std::string& theirs, const std::string& their_hash, const std::string& hash) {
  return absl::StrCat("has another file ", Printable(theirs), " than the job (SHA-256 ", HashText(their_hash),
                      "..., not ", HashText(hash), "...)");
}

}  // namespace

std::string ProgramDifference(const std::string& host, const JobProgram& theirs, const JobProgram& job) {
  if (theirs.words.empty() || job.words.empty()) return "";
  std::string difference;
  if (!HaveSameWords(theirs, job)) {
    const std::string command = absl::StrJoin(theirs.words, " "), job_command = absl::StrJoin(job.words, " ");
    difference = absl::StrCat("runs ", Excerpt(command, job_command), ", the job runs ", Excerpt(job_command, command));
  } else if (Differ(theirs.program_hash, job.program_hash)) {
    difference = FileDifference(theirs.words[0], theirs.program_hash, job.program_hash);
  } else if (theirs.script == job.script && theirs.script > 0 && Differ(theirs.script_hash, job.script_hash)) {
    difference = FileDifference(theirs.words[theirs.script], theirs.script_hash, job.script_hash);
  }
  if (difference.empty()) return "";
  return absl::StrCat("host ", host, " ", difference,
                      ": is it another job? give it another --rdzv-id; --rdzv-conf=same_program=false allows it");
}

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

}  // namespace lockstep::launch
