// The lease that this node's agent has at etcd, in memory that the launcher and its keepers (keeper.h) share. So a
// keeper knows the latest lease of a launcher that was killed.

#ifndef LOCKSTEP_LAUNCH_NODE_SHARED_LEASE_H_
#define LOCKSTEP_LAUNCH_NODE_SHARED_LEASE_H_

#include <stdint.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

namespace lockstep::launch {

// Thread-safe. Create it before the processes fork. If no memory is left, it stays 0.
class SharedLease {
 public:
  SharedLease() {
    void* const page = mmap(nullptr, sizeof(Lease), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) lease_ = new (page) Lease(0);
  }
  ~SharedLease() {
    if (lease_) munmap(lease_, sizeof(Lease));
  }
  SharedLease(const SharedLease&) = delete;
  SharedLease& operator=(const SharedLease&) = delete;

  void Set(int64_t lease) {
    if (lease_) *lease_ = lease;
  }
  // 0: none yet.
  int64_t Get() const { return lease_ ? lease_->load() : 0; }

 private:
  using Lease = std::atomic<int64_t>;
  static_assert(Lease::is_always_lock_free);  // a process may be killed at any moment

  Lease* lease_ = nullptr;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_SHARED_LEASE_H_
