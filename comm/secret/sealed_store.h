#ifndef LOCKSTEP_COMM_SECRET_SEALED_STORE_H_
#define LOCKSTEP_COMM_SECRET_SEALED_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "lockstep/comm/secret/job_secret.h"

namespace lockstep::comm::internal {

// A store that anybody may reach, as the ranks of one job see it: every value in it is sealed with the job's secret,
// those that add() counts in too. get(), compareSet() and add() throw StatusError with PermissionDenied, naming the
// key, where another has written the value. Keys are as they are; so are check(), wait() and deleteKey().
//
// A stranger can still write a key first, delete a key, and put back what a key held before: calls then fail or wait,
// and none returns what a rank of this job did not write under this key. Thread-safe where `store` is. There are no
// queues and no append().
class SealedStore : public c10d::Store {
 public:
  SealedStore(c10::intrusive_ptr<c10d::Store> store, JobSecret secret);

  const c10::intrusive_ptr<c10d::Store>& underlying() const { return store_; }

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
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

// `store` sealed with `secret`; `store` itself where there is none.
c10::intrusive_ptr<c10d::Store> Sealed(c10::intrusive_ptr<c10d::Store> store, const std::optional<JobSecret>& secret);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_SECRET_SEALED_STORE_H_
