// Finds the ranks whose tensors differ from the tensors of most ranks. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_VOTE_H_
#define LOCKSTEP_ELASTIC_INTERNAL_VOTE_H_

#include <stdint.h>

#include <string>
#include <vector>

namespace lockstep::elastic::internal {

struct Vote {
  std::vector<int> majority;  // more than half of the ranks, which are equal. Empty: there are not so many
  std::vector<int> outvoted;  // the others
  std::string difference;     // "rank 2 differs in net: first.weight"; "" if all ranks are equal
};

// `hashes[rank][i]` is the hash of the rank's tensor names[i].
Vote CountVotes(const std::vector<std::vector<uint64_t>>& hashes, const std::vector<std::string>& names);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_VOTE_H_
