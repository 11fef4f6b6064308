#include "lockstep/ddp/internal/own_graph.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace lockstep::ddp::internal {

constexpr size_t kRanges = 64;
constexpr uint64_t kOpen = std::numeric_limits<uint64_t>::max();  // the number of gradient accumulators, too

void OwnGraph::BeginForward() {
  if (!ranges_.empty() && ranges_.back().end == kOpen) ranges_.pop_back();  // of a forward that threw
  ranges_.push_back({at::RecordFunction::currentThreadId(), at::sequence_number::peek(), kOpen});
  unseen_ = false;
}

void OwnGraph::EndForward() {
  Range& last = ranges_.back();
  last.end = at::sequence_number::peek();
  unseen_ = last.begin == last.end;
  if (unseen_) ranges_.pop_back();
  if (ranges_.size() <= kRanges) return;
  const Range oldest = ranges_.front();
  ranges_.pop_front();
  if (ranges_.front().thread == oldest.thread) ranges_.front().begin = oldest.begin;
}

bool OwnGraph::InBackward() {
  const int backward = torch::autograd::get_current_graph_task_id();
  if (backward != searched_) found_ = Search();
  searched_ = backward;
  return found_;
}

// In a backward of the wrapper nearly every node is one of its own, so the search ends at once.
bool OwnGraph::Search() const {
  if (unseen_) return true;
  const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (!nodes) return false;
  return std::any_of(nodes->begin(), nodes->end(), [this](const torch::autograd::Node* node) {
    return std::any_of(ranges_.rbegin(), ranges_.rend(), [node](const Range& range) {
      return node->sequence_nr() >= range.begin && node->sequence_nr() < range.end && node->thread_id() == range.thread;
    });
  });
}

}  // namespace lockstep::ddp::internal
