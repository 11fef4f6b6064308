#include "lockstep/elastic/internal/healing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/elastic/internal/fast_hash.h"
#include "lockstep/elastic/internal/prefault.h"
#include "lockstep/elastic/internal/transfer_plan.h"

namespace lockstep::elastic::internal {
using checkpoint::Value;

namespace {

// N numbers of each rank.
template <size_t N>
absl::StatusOr<std::vector<std::array<int64_t, N>>> Gather(comm::ProcessGroup& group,
                                                           const std::array<int64_t, N>& mine) {
  const at::Tensor all = at::empty({group.size(), static_cast<int64_t>(N)}, at::kLong);
  const at::Tensor own = at::empty({static_cast<int64_t>(N)}, at::kLong);
  std::copy(mine.begin(), mine.end(), own.mutable_data_ptr<int64_t>());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, own));
  std::vector<std::array<int64_t, N>> numbers(group.size());
  memcpy(numbers.data(), all.const_data_ptr(), all.nbytes());
  return numbers;
}

int64_t Hash(const std::string& bytes) { return static_cast<int64_t>(FastHash(bytes.data(), bytes.size())); }

constexpr char kUnfit[] = "lockstep.elastic.unfit", kWithUnfit[] = "lockstep.elastic.with_unfit";

// For the rank that has `error`, while rank `first` has a state.
absl::Status Unfit(int rank, int first, const absl::Status& error) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat("World: rank ", rank, " keeps other things than rank ",
                                                                first, ", which has the state: ", error.message()));
  status.SetPayload(kUnfit, absl::Cord());
  return status;
}

// All ranks must call it. The error of ranks that keep things of different names, of which `rank` is one. If rank
// `first` has a state already, it is an error of those alone that differ from it, and the others go on without them.
absl::Status DifferentNames(comm::ProcessGroup& group, const KeptState& kept, int first, int rank, bool has_begun) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, group.AllGatherBytes(kept.Names()));
  const auto difference = [&](int other) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", first, " keeps ", names[first], "; rank ", other, " keeps ", names[other]));
  };
  if (!has_begun) return Annotate(difference(rank), "World: the ranks keep different things");
  const int me = group.rank();
  if (names[me] != names[first]) return Unfit(me, first, difference(me));
  absl::Status with_unfit = absl::AbortedError(Unfit(rank, first, difference(rank)).message());
  with_unfit.SetPayload(kWithUnfit, absl::Cord());
  return with_unfit;
}

// The facts that ranks exchange before they heal.
enum Fact : size_t { kNames, kCommits, kPart, kNode, kNumFacts };

// When nobody has completed a step.
absl::StatusOr<Healing> AgreeOnStart(comm::ProcessGroup& group, const std::vector<int64_t>& commits,
                                     const KeptState& kept) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Snapshot snapshot, kept.Save());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string frame, checkpoint::Serialize(snapshot.frame));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, Gather<1>(group, {static_cast<int64_t>(snapshot.Hash(frame))}));
  std::vector<uint64_t> hashes;
  for (const auto& rank : ranks) hashes.push_back(static_cast<uint64_t>(rank[0]));
  return PlanStart(commits, hashes);
}

class Transfer {
 public:
  Transfer(comm::ProcessGroup& group, const Healing& healing, const std::vector<NamedTensor>& tensors)
      : group_(group), sources_(healing.sources), receivers_(healing.receivers), tensors_(tensors) {
    std::vector<int64_t> sizes;
    for (const NamedTensor& each : tensors_) {
      sizes.push_back(each.tensor.numel() * static_cast<int64_t>(each.tensor.element_size()));
    }
    pieces_ = PlanTransfer(sizes, sources_);
    receives_ = absl::c_linear_search(receivers_, group_.rank());
  }

  absl::Status Run() {
    std::optional<Prefault> prefault;
    if (receives_) prefault.emplace(tensors_);
    if (Broadcasts(sources_.size(), receivers_.size())) return Broadcast();
    std::vector<comm::Work> sends = Send();
    absl::Status status = receives_ ? Receive() : absl::OkStatus();
    for (comm::Work& send : sends) status.Update(send.Wait());
    return status;
  }

 private:
  at::Tensor Bytes(const Piece& piece) const {
    char* const data = static_cast<char*>(tensors_[piece.tensor].tensor.mutable_data_ptr());
    return at::from_blob(data + piece.begin, {piece.size}, at::kByte);
  }

  uint64_t Hash(const Piece& piece) const {
    const char* const data = static_cast<const char*>(tensors_[piece.tensor].tensor.const_data_ptr());
    return FastHash(data + piece.begin, static_cast<size_t>(piece.size));
  }

  // Returns the number of pieces that come from one source.
  int64_t NumberFrom(int source) const {
    return std::count_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) { return piece.source == source; });
  }

  // Everything that this rank sends. Messages between two ranks arrive in their order.
  std::vector<comm::Work> Send() {
    std::vector<comm::Work> sends;
    const int64_t number = NumberFrom(group_.rank());
    if (number == 0) return sends;
    const at::Tensor hashes = at::empty({number}, at::kLong);
    int64_t next = 0;
    for (const Piece& piece : pieces_) {
      if (piece.source != group_.rank()) continue;
      for (const int receiver : receivers_) sends.push_back(group_.Isend(Bytes(piece), receiver));
      hashes.mutable_data_ptr<int64_t>()[next++] = static_cast<int64_t>(Hash(piece));
    }
    for (const int receiver : receivers_) sends.push_back(group_.Isend(hashes, receiver));
    return sends;
  }

  absl::Status Receive() {
    std::vector<comm::Work> works;
    for (const Piece& piece : pieces_) works.push_back(group_.Irecv(Bytes(piece), piece.source));
    std::vector<at::Tensor> hashes;
    for (const int source : sources_) {
      hashes.push_back(at::empty({NumberFrom(source)}, at::kLong));
      if (hashes.back().numel() > 0) works.push_back(group_.Irecv(hashes.back(), source));
    }
    std::vector<uint64_t> ours;
    absl::Status status;
    for (size_t i = 0; i < works.size(); ++i) {
      status.Update(works[i].Wait());
      if (i < pieces_.size()) ours.push_back(Hash(pieces_[i]));  // while the bytes are in the cache
    }
    LOCKSTEP_RETURN_IF_ERROR(status);
    return Compare(ours, hashes);
  }

  // `ours` of each piece, `theirs` of each source's pieces.
  absl::Status Compare(const std::vector<uint64_t>& ours, const std::vector<at::Tensor>& theirs) const {
    std::vector<int64_t> next(sources_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const size_t source = std::find(sources_.begin(), sources_.end(), piece.source) - sources_.begin();
      const auto hash =
          static_cast<uint64_t>(static_cast<const int64_t*>(theirs[source].const_data_ptr())[next[source]++]);
      if (hash == ours[i]) continue;
      return absl::DataLossError(absl::StrCat(
          "rank ", group_.rank(), ": bytes ", piece.begin, " to ", piece.begin + piece.size, " of ",
          tensors_[piece.tensor].name, " changed on the way from rank ", piece.source, ": expected the hash ",
          absl::Hex(hash, absl::kZeroPad16), ", found ", absl::Hex(ours[i], absl::kZeroPad16)));
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast() {
    const at::Tensor scratch = at::empty({kPieceBytes}, at::kByte);
    std::vector<uint64_t> ours;
    for (const Piece& piece : pieces_) {
      const bool has_place = receives_ || piece.source == group_.rank();
      LOCKSTEP_RETURN_IF_ERROR(
          group_.Broadcast(has_place ? Bytes(piece) : scratch.narrow(0, 0, piece.size), piece.source));
      ours.push_back(has_place ? Hash(piece) : 0);
    }
    std::vector<at::Tensor> hashes;
    for (const int source : sources_) {
      hashes.push_back(at::empty({NumberFrom(source)}, at::kLong));
      if (hashes.back().numel() == 0) continue;
      for (size_t i = 0, next = 0; source == group_.rank() && i < pieces_.size(); ++i) {
        if (pieces_[i].source == source)
          hashes.back().mutable_data_ptr<int64_t>()[next++] = static_cast<int64_t>(ours[i]);
      }
      LOCKSTEP_RETURN_IF_ERROR(group_.Broadcast(hashes.back(), source));
    }
    return receives_ ? Compare(ours, hashes) : absl::OkStatus();
  }

  comm::ProcessGroup& group_;
  const std::vector<int>&sources_, &receivers_;
  const std::vector<NamedTensor>& tensors_;
  std::vector<Piece> pieces_;
  bool receives_ = false;
};

}  // namespace

bool IsUnfit(const absl::Status& status) { return status.GetPayload(kUnfit).has_value(); }
bool IsWithUnfit(const absl::Status& status) { return status.GetPayload(kWithUnfit).has_value(); }

absl::StatusOr<Healing> AgreeOnHealing(comm::ProcessGroup& group, const Progress& progress, const KeptState& kept) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto facts,
                            Gather<kNumFacts>(group, {Hash(kept.Names()), progress.commits,
                                                      static_cast<int64_t>(progress.part), progress.node}));
  std::vector<Progress> ranks;
  std::vector<int64_t> commits;
  for (int rank = 0; rank < group.size(); ++rank) {
    ranks.push_back(
        {facts[rank][kCommits], static_cast<StepPart>(facts[rank][kPart]), static_cast<int>(facts[rank][kNode])});
    commits.push_back(facts[rank][kCommits]);
  }
  Healing healing = PlanHealing(ranks);
  const int first = healing.sources.empty() ? 0 : healing.sources[0];
  for (int rank = 0; rank < group.size(); ++rank) {
    if (facts[rank][kNames] == facts[first][kNames]) continue;
    return DifferentNames(group, kept, first, rank, /*has_begun=*/healing.newest > 0);
  }
  if (healing.sources.empty())
    return absl::DataLossError("World: the ranks that had the state have died while they sent it");
  if (healing.newest != 0) return healing;
  LOCKSTEP_ASSIGN_OR_RETURN(Healing start, AgreeOnStart(group, commits, kept));
  start.nodes = std::move(healing.nodes);
  return start;
}

absl::Status Heal(comm::ProcessGroup& group, const Healing& healing, bool in_place, KeptState* kept) {
  const int rank = group.rank(), first = healing.sources[0];
  const bool sends = absl::c_linear_search(healing.sources, rank),
             receives = absl::c_linear_search(healing.receivers, rank);
  Snapshot snapshot;
  std::string bytes;
  if (sends) {
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot, kept->Save());
  }
  if (rank == first) {
    LOCKSTEP_ASSIGN_OR_RETURN(bytes, checkpoint::Serialize(snapshot.frame));
  }
  LOCKSTEP_RETURN_IF_ERROR(group.BroadcastBytes(bytes, first));
  checkpoint::LoadOptions options;
  options.map_location = "cpu";  // the other rank's devices are not this one's
  LOCKSTEP_ASSIGN_OR_RETURN(const Value frame, checkpoint::Deserialize(bytes, options));
  const std::vector<NamedTensor> layout = LargeTensors(frame);
  if (receives) {
    const auto explained = [&](const absl::Status& error) {
      return error.ok() || healing.newest == 0 ? error : Unfit(rank, first, error);
    };
    absl::StatusOr<IncomingState> incoming = IncomingState::Prepare(kept, frame, in_place);
    if (!incoming.ok()) return explained(incoming.status());
    LOCKSTEP_RETURN_IF_ERROR(TransferTensors(group, healing, incoming->buffers()));
    return explained(incoming->Finish());
  }
  if (!sends) return TransferTensors(group, healing, layout);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckSameLayout(snapshot.large, layout), "World"));
  for (NamedTensor& each : snapshot.large) each.tensor = OnCpu(each.tensor);
  return TransferTensors(group, healing, snapshot.large);
}

absl::Status TransferTensors(comm::ProcessGroup& group, const Healing& healing,
                             const std::vector<NamedTensor>& tensors) {
  return Transfer(group, healing, tensors).Run();
}

}  // namespace lockstep::elastic::internal
