#include "lockstep/comm/hierarchical/internal/host_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/comm/shm/internal/tensors.h"
#include "lockstep/comm/shm/reduce.h"
#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::comm::hierarchical::internal {

using comm::internal::HostSums;
using comm::internal::TreeSumBackend;

HostExchange::HostExchange(const Levels& levels, const at::Tensor& received, const at::Tensor& leaf,
                           std::shared_ptr<const HostSums> sums)
    : levels_(levels),
      received_(received.detach().view(-1)),
      leaf_(leaf.detach().view(-1)),
      sums_(std::move(sums)),
      place_(levels.inward->getRank()) {
  const shm::DType dtype = shm::internal::DTypeOf(leaf);
  TORCH_CHECK_NOT_IMPLEMENTED(shm::TreeSumFunctionFor(dtype), "hierarchical: tree_scatter does not support ",
                              c10::toString(leaf.scalar_type()));
  const std::vector<int64_t>& bounds = *sums_->bounds;
  int64_t largest = 0;
  for (size_t rank = 0; rank + 1 < bounds.size(); ++rank) largest = std::max(largest, bounds[rank + 1] - bounds[rank]);
  // The ranks of a column have one slice each.
  const int64_t hosts = levels.links->size();
  pieces_ = CutIntoPieces(largest * hosts, leaf.element_size(), hosts, /*shares=*/1).size();
  most_ = pieces_ == 0 ? 0 : (largest + pieces_ - 1) / pieces_;
  sent_ = at::empty({(hosts - 1) * static_cast<int64_t>(SumsOf(host())) * most_}, leaf.options());
  header_.elements = bounds.back();
  header_.dtype = static_cast<uint16_t>(dtype);
  header_.op = static_cast<uint8_t>(shm::Op::kSum);
  header_.kind = static_cast<uint8_t>(PieceHeader::Kind::kTreeScatter);
}

// The elements of a rank's slice that are in a piece.
Range HostExchange::PartOf(int rank, uint32_t piece) const {
  const int64_t begin = (*sums_->bounds)[rank];
  const Range part = ShareOf((*sums_->bounds)[rank + 1] - begin, static_cast<int>(piece), static_cast<int>(pieces_));
  return {begin + part.begin, part.count};
}

PieceHeader HostExchange::HeaderOf(uint64_t call, uint32_t piece, int of_host, size_t sum, int to_rank) const {
  PieceHeader header = header_;
  header.call = call;
  header.piece = piece * static_cast<uint32_t>(SumsOf(of_host)) + static_cast<uint32_t>(sum);
  header.bytes = PartOf(to_rank, piece).count * leaf_.element_size();
  return header;
}

// The place of a piece of a host's sum of this rank's slice.
at::Tensor HostExchange::Received(int of_host, size_t sum, uint32_t piece) const {
  size_t before = sum;
  for (int other = 0; other < of_host; ++other) before += SumsOf(other);
  const int rank = levels_.hosts[host()][place_];
  const int64_t begin = (*sums_->bounds)[rank], own = (*sums_->bounds)[rank + 1] - begin;
  const Range part = PartOf(rank, piece);
  return received_.narrow(0, static_cast<int64_t>(before) * own + part.begin - begin, part.count);
}

// The place of a piece of this host's sum of the slice of a rank on another host.
at::Tensor HostExchange::Sent(int to_host, size_t sum, uint32_t piece) const {
  const auto row = static_cast<int64_t>((DistanceTo(to_host) - 1) * SumsOf(host()) + sum);
  return sent_.narrow(0, row * most_, PartOf(levels_.hosts[to_host][place_], piece).count);
}

void HostExchange::Inward(uint32_t piece, std::chrono::milliseconds timeout) {
  auto& on_host = dynamic_cast<TreeSumBackend&>(*levels_.inward);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int to_host = 0; to_host < levels_.links->size(); ++to_host) {
    std::vector<int64_t> slices;
    for (const int rank : levels_.hosts[to_host]) slices.push_back(PartOf(rank, piece).begin);
    slices.push_back(sums_->bounds->back());
    for (size_t sum = 0; sum < SumsOf(host()); ++sum) {
      auto order = std::make_shared<TreeSumOrder>((*sums_->of_hosts)[host()][sum].order);
      order->slices = slices;
      std::vector<at::Tensor> leaves;
      if (order->counts[place_] == 1) leaves.push_back(leaf_);
      const at::Tensor output = to_host == host() ? Received(to_host, sum, piece) : Sent(to_host, sum, piece);
      works.push_back(on_host.TreeSum(output, leaves, std::move(order)));
    }
  }
  for (const auto& work : works) work->wait(timeout);
}

void HostExchange::Send(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const {
  Links& links = *levels_.links;
  for (int distance = 1; distance < links.size(); ++distance) {
    const int peer = (host() + distance) % links.size();
    for (size_t sum = 0; sum < SumsOf(host()); ++sum) {
      const PieceHeader header = HeaderOf(call, piece, host(), sum, levels_.hosts[peer][place_]);
      ThrowIfError(links.Send(peer, 0, header, Sent(peer, sum, piece).const_data_ptr(), timeout));
    }
  }
}

void HostExchange::Receive(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const {
  Links& links = *levels_.links;
  for (int distance = 1; distance < links.size(); ++distance) {
    const int peer = (host() - distance + links.size()) % links.size();
    for (size_t sum = 0; sum < SumsOf(peer); ++sum) {
      const PieceHeader header = HeaderOf(call, piece, peer, sum, levels_.hosts[host()][place_]);
      ThrowIfError(links.Receive(peer, 0, header, Received(peer, sum, piece).mutable_data_ptr(), timeout));
    }
  }
}

}  // namespace lockstep::comm::hierarchical::internal
