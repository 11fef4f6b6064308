// The parts that the simulation's sources share: a node, its processes, and the times.

#ifndef LOCKSTEP_LAUNCH_SIMULATOR_NODE_H_
#define LOCKSTEP_LAUNCH_SIMULATOR_NODE_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/node_slots.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {

using AgentPhase = AgentState::Phase;
using JobPhase = JobState::Phase;

inline constexpr char kLost[] = "the rendezvous is lost";
inline constexpr char kStranger[] = "stranger";
inline constexpr int64_t kStrangerDelay = 10;
inline constexpr int64_t kSecond = 1000;
inline constexpr int64_t kSlowest = kSecond;                           // message
inline constexpr int64_t kHorizon = 3600 * kSecond;                    // nobody may still wait then
inline constexpr int64_t kMostEvents = 20000;                          // nor may so much happen
inline constexpr int64_t kFaultTime = 20 * kSecond;                    // within which faults happen
inline constexpr int64_t kRunTime = 8 * kSecond;                       // of the ranks
inline constexpr int64_t kLeaveTime = 2 * kSecond;                     // that a rank may take to leave a generation
inline constexpr int64_t kSettle = 100;                                // until a failed rank is reported
inline constexpr int64_t kGrace = 2 * kSecond;                         // the most that ranks need to end
inline constexpr int64_t kAgentIsAway = 1500;                          // after silence
inline constexpr int64_t kAgentGivesUp = 60 * kSecond;                 // over TCP; with etcd it tries on
inline constexpr int64_t kEviction = 2250;                             // of a silent agent
inline constexpr int64_t kLeaveTimeout = 10 * kSecond;                 // of an agent that serves the others
inline constexpr int64_t kClosedGivesUp = 300, kClosedEviction = 400;  // after a connection has closed

// One that stays when another one fails.
struct Simulation::Process {
  int64_t id = 0;  // no other process of the job has it
  int64_t in = 0;  // the generation that it was told, and has not left
  bool alive = false;
  bool ready = false;   // it waits for a generation
  bool was_in = false;  // it has been told one
  bool done = false;    // it has done its work in `in`, and has not ended
};

struct Simulation::Node {
  Node(int index, std::string id) : index(index), id(std::move(id)) {}

  const int index;
  const std::string id;
  std::optional<AgentSteps> steps;  // from its start on
  bool alive = false;
  bool cut = false;       // nothing arrives from it or at it
  int64_t cut_ms = 0;     // since when
  bool knows_cut = true;  // it ends its ranks in time
  bool signalled = false;
  bool vanished = false;  // it has died, was cut off or has returned
  int64_t leaves_since_ms = -1;
  bool evicted = false;         // the store has dropped its post
  bool was_lost = false;        // the same, some time before
  int64_t evicted_ms = -1;      // the last time
  bool evicted_in_run = false;  // since the decision that started its ranks
  bool returned = false;
  bool running = false;        // ranks run or are being ended
  bool ending = false;         // and this has begun
  int64_t running_number = 0;  // of the start, so that events of an earlier one have no effect
  int64_t start = 0;
  int64_t epoch = 0;  // changes with each cut, crash and return
  uint64_t posts = 0;
  uint64_t decision_seen = 0;
  int port = 0;
  // The slots of processes that stay when another one fails.
  std::optional<NodeSlots> slots;
  std::vector<Process> processes;  // by slot
  int link_port = 0;
  int64_t gone_ms = -1;  // when its processes were last ended, or it was out of reach
  absl::Status result;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_SIMULATOR_NODE_H_
