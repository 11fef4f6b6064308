// The keys in the store by which ranks meet.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_BOARD_H_
#define LOCKSTEP_COMM_RENDEZVOUS_BOARD_H_

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/rendezvous/roster.h"

namespace lockstep::comm {

inline constexpr char kWorldKey[] = "lockstep/world";      // "<size>|<announcement>" of the first rank to arrive
inline constexpr char kOutcomeKey[] = "lockstep/outcome";  // "0|<roster>", or "<code>|<message>" of the first to fail

std::string MemberKey(int rank);  // the rank's announcement

// The key under which a rank of PyTorch 2.11's init_process_group writes the address of its Gloo connections, before it
// waits for the others. A Lockstep rank writes it too, but after its announcement.
std::string PythonKey(int rank);

// Text for messages: the store may hold any bytes.
std::string Excerpt(absl::string_view text);

// The store, for one rank that meets the others. Its calls return PermissionDenied, naming the key, for a value that
// the ranks of this job did not write: a sealed store refuses it, and a store that is not sealed shows the sealed
// values of ranks with a secret. Any other error ends the exchange with the store, so it is thrown as StatusError.
class Board {
 public:
  explicit Board(c10::intrusive_ptr<c10d::Store> store);

  const std::string& place() const { return place_; }  // "store at host:port"

  bool Has(const std::vector<std::string>& keys);  // whether all keys exist

  int64_t CountKeys();  // of the whole store

  // Blocks until all keys exist, in one request. Returns false if they do not in `patience`.
  bool Await(const std::vector<std::string>& keys, absl::Duration patience);

  absl::StatusOr<std::string> Read(const std::string& key);
  absl::StatusOr<std::vector<std::string>> ReadAll(const std::vector<std::string>& keys);
  // Internal, naming the key: it holds another text.
  absl::StatusOr<Member> ReadMember(int rank);
  absl::StatusOr<std::vector<Member>> ReadMembers(const std::vector<int>& ranks);

  void Put(const std::string& key, const std::string& value);

  // Sets the key to `value` if it does not exist, and returns its value.
  absl::StatusOr<std::string> PutFirst(const std::string& key, const std::string& value);

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string place_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_BOARD_H_
