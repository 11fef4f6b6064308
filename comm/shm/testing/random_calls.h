// Random operations with a reference for their results.

#ifndef LOCKSTEP_COMM_SHM_TESTING_RANDOM_CALLS_H_
#define LOCKSTEP_COMM_SHM_TESTING_RANDOM_CALLS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/shm/communicator.h"

namespace lockstep::comm::shm::testing {

// One operation, the same on all ranks: each rank draws it from a generator in the same state. A message goes from rank
// `root` to rank `peer`.
struct RandomCall {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;
  int peer = 0;
  int64_t tag = 0;
  uint64_t number = 0;
  std::vector<size_t> counts;  // elements; one count, or for all_to_all [from * size + to]
  bool all_shared = false;     // for all_reduce: every rank's buffer is in the segment
  int shared_rank = -1;        // for all_reduce: only this rank's buffer is in the segment
};
RandomCall DrawCall(std::mt19937_64& random, int size, size_t most_bytes, uint64_t number);

// A rank's part in the operation: buffers with this rank's inputs, the call under way, and the check of its results.
class RankCall {
 public:
  RankCall(const RandomCall& call, Communicator& communicator);
  void Start();
  // Waits, and compares every byte of the results and of the untouched inputs with the reference.
  absl::Status Finish(absl::Time deadline);

 private:
  std::vector<char> Inputs(int rank, int part, size_t count) const;
  std::vector<char> Reduced(int part, size_t count) const;
  void Add(Buffers& buffers, const std::vector<char>& contents, bool shared = false);
  void AddResult(size_t count) { Add(request_.results, std::vector<char>(count * SizeOf(call_.dtype), '?')); }
  void Expect(const Buffer& buffer, std::vector<char> contents);
  void Prepare();
  void PrepareReduction();
  void PrepareMovement();
  void PrepareMessage();

  const RandomCall call_;
  Communicator& communicator_;
  Request request_;
  std::vector<std::shared_ptr<char>> memory_;
  std::vector<std::pair<Buffer, std::vector<char>>> expected_;
  std::shared_ptr<Operation> started_;
};

}  // namespace lockstep::comm::shm::testing

#endif  // LOCKSTEP_COMM_SHM_TESTING_RANDOM_CALLS_H_
