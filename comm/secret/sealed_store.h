#ifndef LOCKSTEP_COMM_SECRET_SEALED_STORE_H_
#define LOCKSTEP_COMM_SECRET_SEALED_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/base/libtorch_version.h"
#include "lockstep/comm/secret/job_secret.h"

namespace lockstep::comm {

// A view of a store that anyone can reach, for the ranks of one job. Every value is sealed with the job's secret,
// including the counters of add(). get(), multiGet(), compareSet() and add() throw StatusError with PermissionDenied,
// naming the key, if a stranger wrote the value. Keys are not changed, and check(), wait() and deleteKey() work as in a
// plain store.
//
// A stranger can still write a key first, delete a key, and restore an earlier value of a key. Calls then fail or wait,
// but every value they return was written by a rank of this job under this key. Thread-safe if `store` is. Queues and
// append() are not supported.
class SealedStore : public c10d::Store {
 public:
  SealedStore(c10::intrusive_ptr<c10d::Store> store, JobSecret secret);

  const c10::intrusive_ptr<c10d::Store>& underlying() const { return store_; }

  using Store::compareSet;
  using Store::set;
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
  c10::intrusive_ptr<c10d::Store> clone() override;
#endif
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) override { store_->setTimeout(timeout); }
  bool hasExtendedApi() const override { return false; }

 private:
  std::string Open(const std::string& key, const std::string& sealed) const;
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired);

  const c10::intrusive_ptr<c10d::Store> store_;
  const JobSecret secret_;
};

// Returns `store` sealed with `secret`, or `store` itself without a secret.
c10::intrusive_ptr<c10d::Store> Sealed(c10::intrusive_ptr<c10d::Store> store, const std::optional<JobSecret>& secret);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SECRET_SEALED_STORE_H_
