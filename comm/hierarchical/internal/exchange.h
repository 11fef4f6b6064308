#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_EXCHANGE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_EXCHANGE_H_

#include <chrono>
#include <cstdint>

namespace lockstep::comm::hierarchical::internal {

// One rank's part of a call in which each rank sends tensors to its column and receives others, in pieces. A Pipeline
// takes each piece through the phases, in order: one thread calls Inward() and then Send(), another Receive(), and that
// one or a third Outward(). `call` is the number of the call.
//
// The functions throw the errors of the backends within the host, and of the links.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual uint32_t pieces() const = 0;

  // Makes this rank's messages of the piece, together with the ranks of its host.
  virtual void Inward(uint32_t /*piece*/, std::chrono::milliseconds /*timeout*/) {}
  virtual void Send(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const = 0;
  virtual void Receive(uint32_t piece, uint64_t call, std::chrono::milliseconds timeout) const = 0;
  // Gives what this rank received to the ranks of its host, and gets what they received.
  virtual void Outward(uint32_t /*piece*/, std::chrono::milliseconds /*timeout*/) const {}
};

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_EXCHANGE_H_
