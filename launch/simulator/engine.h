// The parts that simulators of decisions share: a virtual clock, events in their order, all chance from one seed, and
// the first broken rule. A seed replays exactly.
//
//   class Simulation : simulator::Engine {
//    public:
//     explicit Simulation(const simulator::Config& config) : Engine(config, /*tick=*/absl::Milliseconds(1)) {}
//
//     simulator::Report Run() {
//       After(Random(100), [this] { Trace("a rank fails"); });
//       RunEvents(/*horizon=*/3600000, /*most_events=*/20000, [this](int node) { Crash(node); }, [this] { return Audit(); });
//       return report_;
//     }
//   };
//
// Times are in ticks.

#ifndef LOCKSTEP_LAUNCH_SIMULATOR_ENGINE_H_
#define LOCKSTEP_LAUNCH_SIMULATOR_ENGINE_H_

#include <stdint.h>

#include <functional>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"

namespace lockstep::launch::simulator {

// The death of a node or a process, before an event.
struct Death {
  int who = -1;
  int64_t event = -1;
};

struct Config {
  uint64_t seed = 1;
  int faults = 3;             // at random times
  std::vector<Death> deaths;  // besides
  bool trace = false;         // prints each event
};

struct Report {
  std::string violation;  // the first one, or ""
  std::string result;     // how the job ended
  int64_t events = 0;
  std::map<std::string, int64_t> counts;  // of what happened besides
  absl::flat_hash_set<uint64_t> states;   // of the decisions, where a simulator knows them
};

class Engine {
 protected:
  using Then = std::function<void()>;

  Engine(const Config& config, absl::Duration tick);
  ~Engine() = default;

  // Runs events in their order, until `after` returns false, a rule is broken, no event is left, the next one is later
  // than `horizon`, or there have been `most_events`. Calls `die` ahead of an event for those who die before it, and
  // `after` behind it.
  void RunEvents(int64_t horizon, int64_t most_events, const std::function<void(int who)>& die,
                 const std::function<bool()>& after);

  void After(int64_t ticks, Then run);
  int64_t Random(int64_t bound);  // from 0 to bound - 1; 0 if there is none
  void Trace(const std::string& text) const;
  void Violation(const std::string& text);

  int64_t now() const { return now_; }
  absl::Time Now() const { return absl::UnixEpoch() + now_ * tick_; }

  std::mt19937_64 random_;
  Report report_;

 private:
  struct Event {
    int64_t at;
    uint64_t order;
    Then run;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  const std::vector<Death> deaths_;
  const bool trace_;
  const absl::Duration tick_;
  int64_t now_ = 0;
  uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
};

}  // namespace lockstep::launch::simulator

#endif  // LOCKSTEP_LAUNCH_SIMULATOR_ENGINE_H_
