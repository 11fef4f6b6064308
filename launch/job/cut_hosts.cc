#include "lockstep/launch/job/cut_hosts.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/launch/job/job.h"

namespace lockstep::launch {
namespace {

constexpr absl::Duration kFirstTime = absl::Minutes(1);
constexpr int kMostDoublings = 4;

// The hosts that are cut off from this one.
std::vector<std::string> Others(int host, const std::vector<CutHosts::Host>& all,
                                const std::set<std::pair<int, int>>& cuts) {
  std::vector<std::string> names;
  for (const auto& [a, b] : cuts) {
    if (a == host || b == host) names.push_back(all[a == host ? b : a].name);
  }
  return names;
}

std::string NotAllowedText(const std::vector<CutHosts::Host>& all, const std::set<std::pair<int, int>>& cuts,
                           int least) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (!Others(i, all, cuts).empty()) names.push_back(all[i].name);
  }
  return absl::StrCat(HostsText(names), " do not all reach each other, but --nnodes needs ", NodesText(least),
                      ", so all of them are tried again");
}

}  // namespace

std::set<int> HostsToLeaveOut(int count, const std::set<std::pair<int, int>>& cuts) {
  std::set<int> out;
  for (;;) {
    std::vector<int> degrees(count);
    for (const auto& [a, b] : cuts) {
      if (out.count(a) + out.count(b) != 0) continue;
      ++degrees[a];
      ++degrees[b];
    }
    const auto worst = std::max_element(degrees.rbegin(), degrees.rend());
    if (worst == degrees.rend() || *worst == 0) return out;
    out.insert(static_cast<int>(degrees.rend() - worst) - 1);
  }
}

absl::Duration TimeLeftOut(int times) { return kFirstTime * (1 << std::clamp(times - 1, 0, kMostDoublings)); }

CutHosts::CutHosts(Memory memory, absl::Time now) : memory_(std::move(memory)) {
  for (const Memory::LeftOut& host : memory_.left_out) {
    if (host.waits) until_[host.host.agent] = now + TimeLeftOut(host.times);
  }
}

void CutHosts::Record(const std::string& agent, const std::string& other) {
  const Cut cut = agent < other ? Cut{agent, other} : Cut{other, agent};
  if (!absl::c_linear_search(memory_.cuts, cut)) memory_.cuts.push_back(cut);
  has_news_ = true;
}

std::set<std::string> CutHosts::Decide(const std::vector<Host>& hosts, int least, int spares, absl::Time now) {
  has_news_ = false;
  std::vector<Host> all = hosts;
  for (const Memory::LeftOut& host : memory_.left_out) {
    if (host.waits) all.push_back(host.host);
  }
  const auto index = [&](const std::string& agent) {
    const auto found = absl::c_find_if(all, [&](const Host& host) { return host.agent == agent; });
    return static_cast<int>(found - all.begin());
  };
  std::set<std::pair<int, int>> cuts;
  for (const auto& [a, b] : memory_.cuts) {
    const int last = static_cast<int>(all.size());
    if (index(a) < last && index(b) < last) cuts.insert({index(a), index(b)});
  }
  const std::set<int> out = HostsToLeaveOut(static_cast<int>(all.size()), cuts);
  if (static_cast<int>(all.size() - out.size()) + spares < least) {
    memory_.line = NotAllowedText(all, cuts, least);
    const auto stays_out = [this](const auto& cut) { return IsLeftOut(cut.agent) || IsLeftOut(cut.other); };
    memory_.cuts.erase(std::stable_partition(memory_.cuts.begin(), memory_.cuts.end(), stays_out), memory_.cuts.end());
    return {};
  }
  SetLeftOut(all, cuts, out, now);
  std::set<std::string> agents;
  for (const int host : out) {
    if (host < static_cast<int>(hosts.size())) agents.insert(all[host].agent);
  }
  return agents;
}

// Hosts that were left out before are at the end of `all`.
void CutHosts::SetLeftOut(const std::vector<Host>& all, const std::set<std::pair<int, int>>& cuts,
                          const std::set<int>& out, absl::Time now) {
  std::vector<std::string> texts;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    auto known = absl::c_find_if(memory_.left_out, [&](const auto& host) { return host.host.agent == all[i].agent; });
    if (out.count(i) == 0) {
      if (known != memory_.left_out.end()) known->waits = false;
      until_.erase(all[i].agent);
      continue;
    }
    if (known == memory_.left_out.end()) known = memory_.left_out.insert(known, {all[i]});
    if (known->waits) continue;
    known->waits = true;
    const absl::Duration time = TimeLeftOut(++known->times);
    until_[all[i].agent] = now + time;
    texts.push_back(absl::StrCat("host ", all[i].name, " is left out, and is tried again in ",
                                 absl::FormatDuration(time), ": it and ", HostsText(Others(i, all, cuts)),
                                 " do not reach each other"));
  }
  if (!texts.empty()) memory_.line = absl::StrJoin(texts, "; ");
}

// Forgets everything that was said about this host.
void CutHosts::Forget(const std::string& agent) {
  const auto has_it = [&](const auto& cut) { return cut.agent == agent || cut.other == agent; };
  memory_.cuts.erase(std::remove_if(memory_.cuts.begin(), memory_.cuts.end(), has_it), memory_.cuts.end());
}

bool CutHosts::Update(const std::function<bool(const std::string& agent)>& is_there, absl::Time now) {
  bool changed = false;
  const auto is_gone = [&](const Memory::LeftOut& host) {
    if (is_there(host.host.agent)) return false;
    until_.erase(host.host.agent);
    Forget(host.host.agent);
    return changed = true;
  };
  memory_.left_out.erase(std::remove_if(memory_.left_out.begin(), memory_.left_out.end(), is_gone),
                         memory_.left_out.end());
  for (Memory::LeftOut& host : memory_.left_out) {
    if (!host.waits || now < until_[host.host.agent]) continue;
    host.waits = false;
    until_.erase(host.host.agent);
    Forget(host.host.agent);
    memory_.line.clear();
    changed = true;
  }
  return changed;
}

absl::Time CutHosts::next_look() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [agent, time] : until_) next = std::min(next, time);
  return next;
}

bool CutHosts::IsLeftOut(const std::string& agent) const { return until_.count(agent) != 0; }

}  // namespace lockstep::launch
