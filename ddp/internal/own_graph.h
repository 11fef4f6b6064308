// Recognises the backward passes that a wrapper averages.

#ifndef LOCKSTEP_DDP_INTERNAL_OWN_GRAPH_H_
#define LOCKSTEP_DDP_INTERNAL_OWN_GRAPH_H_

#include <cstdint>
#include <deque>

namespace lockstep::ddp::internal {

// The part of autograd's graph that a wrapper's forward passes made. Autograd numbers the nodes that a thread makes, so
// a forward is a range of these numbers.
//
//   own.BeginForward();
//   output = net->forward(input);
//   own.EndForward();
//   ...
//   if (own.InBackward()) Average(gradient);   // in a hook
//
// The ranges of the last 64 forward passes are exact. Older ones are joined, together with what lies between them.
class OwnGraph {
 public:
  // Around each forward that computes gradients, in its thread.
  void BeginForward();
  void EndForward();

  // Returns whether the backward that runs in this thread passes through a node that one of the forward passes made. If
  // the last forward made none in its thread, as if it computed in other threads, every backward counts.
  bool InBackward();

 private:
  struct Range {
    uint64_t thread;
    uint64_t begin, end;  // the numbers of its nodes; no end while the forward runs
  };

  bool Search() const;

  std::deque<Range> ranges_;  // in the order of the forward passes
  bool unseen_ = false;       // the last forward made no node in its thread
  int searched_ = -1;         // the last backward for which Search() was called
  bool found_ = false;        // its result
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_OWN_GRAPH_H_
