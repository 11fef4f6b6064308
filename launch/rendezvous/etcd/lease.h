// An agent's lease, with which its keys at etcd end. Without requests and clocks: times are MonotonicNanos().

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_LEASE_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_LEASE_H_

#include <stdint.h>

#include <algorithm>

namespace lockstep::launch::etcd {

class Lease {
 public:
  // 0: there is none.
  int64_t id() const { return id_; }
  // True if etcd has ended the last one, and there is not another one yet.
  bool was_ended() const { return was_ended_; }
  // When it expires unless it is kept alive; 0: there has been none.
  int64_t end_ns() const { return end_ns_; }
  bool Holds(int64_t now) const { return now < end_ns_; }
  // Returns true if it must be kept alive now.
  bool IsDue(int64_t now) const { return id_ != 0 && now >= due_ns_; }
  // When IsDue() changes.
  int64_t due_ns() const { return due_ns_; }

  void Grant(int64_t id) { id_ = id; }
  // etcd keeps it for `seconds` after `sent_ns`, when it was asked.
  void Keep(int64_t sent_ns, int64_t seconds) {
    constexpr int64_t kNsPerSecond = 1'000'000'000;
    was_ended_ = false;
    end_ns_ = sent_ns + seconds * kNsPerSecond;
    due_ns_ = sent_ns + seconds * kNsPerSecond / 3;
  }
  void Lose(int64_t now) {
    id_ = 0;
    was_ended_ = true;
    end_ns_ = std::min(end_ns_, now);
  }

 private:
  int64_t id_ = 0;
  bool was_ended_ = false;
  int64_t end_ns_ = 0, due_ns_ = 0;
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_LEASE_H_
