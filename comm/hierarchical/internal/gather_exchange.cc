#include "lockstep/comm/hierarchical/internal/gather_exchange.h"

#include <c10/util/Exception.h>

#include "lockstep/base/torch_status.h"
#include "lockstep/comm/shm/internal/tensors.h"

namespace lockstep::comm::hierarchical::internal {

GatherExchange::GatherExchange(const Levels& levels, const std::vector<at::Tensor>& outputs, const at::Tensor& input)
    : levels_(levels), place_(levels.inward->getRank()) {
  const size_t bytes = shm::internal::BufferOf("all_gather", input).bytes;
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == levels.size, "hierarchical: all_gather takes ", levels.size,
                    " outputs, found ", outputs.size());
  for (const at::Tensor& output : outputs) {
    const size_t found = shm::internal::BufferOf("all_gather", output).bytes;
    TORCH_CHECK_VALUE(found == bytes, "hierarchical: all_gather: an output has ", found, " bytes, expected ", bytes);
    outputs_.push_back(output.detach().view(-1));
  }
  input_ = input.detach().view(-1);
  // The ranks of a column have one part each.
  const int64_t hosts = levels.links->size();
  pieces_ = CutIntoPieces(input.numel() * hosts, input.element_size(), hosts, /*shares=*/1).size();
  header_.elements = input.numel() * levels.size;
  header_.dtype = static_cast<uint16_t>(shm::internal::DTypeOf(input));
  header_.kind = static_cast<uint8_t>(PieceHeader::Kind::kAllGather);
}

at::Tensor GatherExchange::PartOf(const at::Tensor& flat, uint32_t piece) const {
  const Range part = ShareOf(flat.numel(), static_cast<int>(piece), static_cast<int>(pieces_));
  return flat.narrow(0, part.begin, part.count);
}

PieceHeader GatherExchange::HeaderOf(uint64_t call, uint32_t piece) const {
  PieceHeader header = header_;
  header.call = call;
  header.piece = piece;
  header.bytes = PartOf(input_, piece).nbytes();
  return header;
}

void GatherExchange::Send(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const {
  const at::Tensor part = PartOf(input_, piece);
  for (int distance = 1; distance < levels_.links->size(); ++distance) {
    const int peer = (host() + distance) % levels_.links->size();
    ThrowIfError(levels_.links->Send(peer, 0, HeaderOf(call, piece), part.const_data_ptr(), timeout));
  }
}

void GatherExchange::Receive(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const {
  for (int distance = 1; distance < levels_.links->size(); ++distance) {
    const int peer = (host() - distance + levels_.links->size()) % levels_.links->size();
    const at::Tensor part = PartOf(outputs_[levels_.hosts[peer][place_]], piece);
    ThrowIfError(levels_.links->Receive(peer, 0, HeaderOf(call, piece), part.mutable_data_ptr(), timeout));
  }
}

void GatherExchange::Outward(uint32_t piece, std::chrono::milliseconds timeout) const {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int of_host = 0; of_host < levels_.links->size(); ++of_host) {
    const std::vector<int>& ranks = levels_.hosts[of_host];
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (const int rank : ranks) outputs[0].push_back(PartOf(outputs_[rank], piece));
    std::vector<at::Tensor> inputs = {of_host == host() ? PartOf(input_, piece) : outputs[0][place_]};
    works.push_back(levels_.outward->allgather(outputs, inputs));
  }
  for (const auto& work : works) work->wait(timeout);
}

}  // namespace lockstep::comm::hierarchical::internal
