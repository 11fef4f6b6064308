#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_HOST_EXCHANGE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_HOST_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "lockstep/comm/hierarchical/internal/exchange.h"
#include "lockstep/comm/hierarchical/internal/levels.h"
#include "lockstep/comm/hierarchical/internal/pieces.h"
#include "lockstep/comm/internal/tree_sum_backend.h"

namespace lockstep::comm::hierarchical::internal {

// A tree_scatter of one rank over several hosts. Each piece has a part of every rank's slice. For each rank of its
// column, this rank adds up what its host has of that rank's slice, and sends the host's sums to that rank. So a slice
// crosses the network once for each sum of a host.
class HostExchange final : public Exchange {
 public:
  // The arguments are as for HostSumBackend::SumOnHosts(). `levels` is borrowed, and has links. Throws
  // c10::NotImplementedError: the dtype has no tree sum.
  HostExchange(const Levels& levels, const at::Tensor& received, const at::Tensor& leaf,
               std::shared_ptr<const comm::internal::HostSums> sums);

  uint32_t pieces() const override { return pieces_; }
  // When it returns, no rank of the host reads this rank's part of the piece any more.
  void Inward(uint32_t piece, std::chrono::milliseconds timeout) override;
  void Send(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const override;
  void Receive(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const override;

 private:
  int host() const { return levels_.links->rank(); }
  // The number of hosts from this one to another, cyclically.
  int DistanceTo(int other) const { return (other - host() + levels_.links->size()) % levels_.links->size(); }
  size_t SumsOf(int of_host) const { return (*sums_->of_hosts)[of_host].size(); }
  Range PartOf(int rank, uint32_t piece) const;
  PieceHeader HeaderOf(uint64_t call, uint32_t piece, int of_host, size_t sum, int to_rank) const;
  at::Tensor Received(int of_host, size_t sum, uint32_t piece) const;
  at::Tensor Sent(int to_host, size_t sum, uint32_t piece) const;

  const Levels& levels_;
  const at::Tensor received_, leaf_;  // flat
  const std::shared_ptr<const comm::internal::HostSums> sums_;
  const int place_;  // of this rank on its host
  uint32_t pieces_ = 0;
  int64_t most_ = 0;    // elements of a slice in a piece
  at::Tensor sent_;     // of the piece: `most_` elements for each other host and each sum of this one
  PieceHeader header_;  // without the number of the call, of the piece, and of bytes
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_HOST_EXCHANGE_H_
