#ifndef LOCKSTEP_COMM_STORE_INTERNAL_GUARDED_STORE_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_GUARDED_STORE_H_

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::comm::internal {

// A prefix of `store` for a backend that is being made. A wait for a key ends within `longest_piece`, or within 250 ms
// if it has just begun, once `failure` returns an error: a rank that failed or died never writes its keys. Waits,
// get(), multiGet() and check() then throw StatusError. A waiting rank sends the store two requests for each piece.
// check({}) sends none, so a rank that waits for something else can call it often.
class GuardedStore : public c10d::PrefixStore {
 public:
  GuardedStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store, std::function<absl::Status()> failure,
               std::chrono::milliseconds longest_piece);

  std::vector<uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;

 private:
  const std::function<absl::Status()> failure_;
  const std::chrono::milliseconds longest_piece_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_GUARDED_STORE_H_
