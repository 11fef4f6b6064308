// Where the agents of a job meet, one agent a node. Each posts what it knows about itself. One of them leads: it sees
// all posts, and posts the decisions, which all see.
//
// The texts are opaque here: see job.h. Only the latest post of an agent, and the latest decision, count, so nothing
// depends on how many were seen in between.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_RENDEZVOUS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_RENDEZVOUS_H_

#include <stdint.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::launch {

// Thread-compatible: one thread calls it. No call blocks, except Leave().
class Rendezvous {
 public:
  struct Agent {
    std::string text;         // what it posted last
    int64_t received_ns = 0;  // when this process got the text; MonotonicNanos()
  };

  // Nobody answers at the rendezvous. The texts are for messages: "no launcher has answered at 10.0.0.1:29400".
  struct Silence {
    std::string who;   // "etcd at 10.0.0.1:2379"
    std::string what;  // what has not happened
    std::string why;
    int64_t since_ns = 0;  // MonotonicNanos()
    int64_t until_ns = 0;  // when this agent gives up
  };

  // Says whether this agent and the others see each other.
  struct Reach {
    // The others do not see this agent: it has been out of reach for longer than the time to live. It may come back.
    bool away = false;
    // The others may know this agent: it has been in reach at least once.
    bool met = false;
    std::optional<Silence> silence;  // always there while `away`
  };

  struct View {
    // Not OK: this agent cannot take part any more, and a later Look() says the same. Unavailable: nobody answers at
    // the endpoint, or the connection was lost, for longer than the deadline. PermissionDenied: the secret is another
    // one. The message names the endpoint.
    absl::Status status;
    bool leads = false;
    Reach reach;
    // By id: every agent that has posted and is still there, this one included. Empty unless `leads`.
    std::map<std::string, Agent> agents;
    std::string decision;  // the latest one, or "" if there is none
  };

  virtual ~Rendezvous() = default;

  // Replaces this agent's text. The others see it until this agent leaves, dies, or is out of reach for the time to
  // live.
  virtual void Post(absl::string_view text) = 0;

  // Replaces the decision. Has no effect unless this agent leads when the text arrives.
  virtual void Decide(absl::string_view text) = 0;

  // Becomes readable when the view has changed. Look() makes it unreadable.
  virtual int fd() const = 0;
  virtual View Look() = 0;

  // Removes this agent's text. A leader whose process serves the others waits until all of them have left, or until the
  // timeout. Nothing else is called afterwards.
  virtual void Leave(absl::Duration timeout) = 0;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_RENDEZVOUS_H_
