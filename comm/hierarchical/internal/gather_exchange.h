#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_GATHER_EXCHANGE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_GATHER_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "lockstep/comm/hierarchical/internal/exchange.h"
#include "lockstep/comm/hierarchical/internal/levels.h"
#include "lockstep/comm/hierarchical/internal/pieces.h"

namespace lockstep::comm::hierarchical::internal {

// An all_gather of one rank over several hosts. A piece has a part of every rank's input. Each rank sends its part to
// its column, and gives the parts of its column to the ranks of its host. So an input crosses the network once a host.
class GatherExchange final : public Exchange {
 public:
  // outputs[r] becomes rank r's input. `levels` is borrowed, and has links and as many ranks on each host. Throws
  // c10::ValueError: a tensor is not dense and contiguous on the CPU, or an output has another size than the input.
  GatherExchange(const Levels& levels, const std::vector<at::Tensor>& outputs, const at::Tensor& input);

  uint32_t pieces() const override { return pieces_; }
  void Send(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const override;
  void Receive(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const override;
  void Outward(uint32_t piece, std::chrono::milliseconds timeout) const override;

 private:
  int host() const { return levels_.links->rank(); }
  at::Tensor PartOf(const at::Tensor& flat, uint32_t piece) const;
  PieceHeader HeaderOf(uint64_t call, uint32_t piece) const;

  const Levels& levels_;
  const int place_;                  // of this rank on its host
  at::Tensor input_;                 // flat
  std::vector<at::Tensor> outputs_;  // flat
  uint32_t pieces_ = 0;
  PieceHeader header_;  // without the number of the call, of the piece, and of bytes
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_GATHER_EXCHANGE_H_
