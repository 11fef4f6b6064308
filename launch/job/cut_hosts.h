// Which hosts of a job do not reach each other, as their ranks say, and which of them its generations leave out. Part
// of Membership, and as pure.

#ifndef LOCKSTEP_LAUNCH_JOB_CUT_HOSTS_H_
#define LOCKSTEP_LAUNCH_JOB_CUT_HOSTS_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::launch {

// Which of `count` hosts must go, so that all others reach each other; `cuts` are the pairs that do not. One after
// another goes, always the one with the most cuts to the hosts that are left; of several such hosts, the last. So the
// hosts that reach most others stay, whoever has said so, and whichever has rank 0.
std::set<int> HostsToLeaveOut(int count, const std::set<std::pair<int, int>>& cuts);

// How long a host is left out that has been left out so often: 1 minute, twice as long each time, and at most 16.
absl::Duration TimeLeftOut(int times);

class CutHosts {
 public:
  struct Host {
    std::string agent;
    std::string name;  // for people
  };

  // Two agents whose hosts do not reach each other, in the order of their ids.
  struct Cut {
    std::string agent;
    std::string other;

    bool operator==(const Cut& cut) const { return agent == cut.agent && other == cut.other; }
  };

  // All that another leader needs to go on. Times begin anew.
  struct Memory {
    struct LeftOut {
      Host host;
      int times = 0;
      bool waits = false;  // it is left out now
    };

    std::vector<Cut> cuts;
    std::vector<LeftOut> left_out;
    std::string line;  // what was decided last, for people
  };

  CutHosts() = default;
  CutHosts(Memory memory, absl::Time now);

  // A rank on a host of the generation that ended says that another one's host has not answered.
  void Record(const std::string& agent, const std::string& other);
  bool has_news() const { return has_news_; }

  // When a generation forms after such news: which of `hosts`, in the order of their ranks, it leaves out. Hosts that
  // were left out may come back instead. At least `least` hosts must be there then, of which `spares` wait besides
  // `hosts`; otherwise nobody is left out, and all are tried again.
  std::set<std::string> Decide(const std::vector<Host>& hosts, int least, int spares, absl::Time now);

  // Lets hosts come back whose time is over, and forgets agents that are not there any more. Whether memory() has
  // changed.
  bool Update(const std::function<bool(const std::string& agent)>& is_there, absl::Time now);
  absl::Time next_look() const;

  bool IsLeftOut(const std::string& agent) const;
  const Memory& memory() const { return memory_; }

 private:
  void Forget(const std::string& agent);
  void SetLeftOut(const std::vector<Host>& all, const std::set<std::pair<int, int>>& cuts, const std::set<int>& out,
                  absl::Time now);

  Memory memory_;
  bool has_news_ = false;
  std::map<std::string, absl::Time> until_;  // by agent that is left out
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_CUT_HOSTS_H_
