// Which parameters form a unit, and which of a unit's elements each rank owns. Pure.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_PLAN_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

struct ParameterInfo {
  std::string name;  // "blocks.0.fc.weight"
  int64_t numel = 0;
  int64_t rows = 1;  // the size of dimension 0
  int dtype = 0;     // a unit has one
  int64_t element_bytes = 4;
  bool trained = true;  // all parameters of a unit are, or none
};

// Returns the units, each with the indices of its parameters in ascending order. Each parameter is in one unit, and
// units are in the order of their first parameters. InvalidArgument: a path fits no parameter, or unit_bytes is below 1.
absl::StatusOr<std::vector<std::vector<int>>> PlanUnits(const std::vector<ParameterInfo>& parameters,
                                                        const Options& options);

// Elements of one parameter that one rank owns. With several replicas, `rank` is the rank's place.
struct Piece {
  int rank = 0;
  int parameter = 0;           // its place in the unit
  int64_t begin = 0, end = 0;  // in the parameter's memory
  int64_t offset = 0;          // of `begin` in the buffer of gradients
  int64_t in_share = 0;        // of `begin` in the rank's share, if the rank publishes it
  bool is_second = false;      // another rank owns them too, and publishes them
  // In that buffer, 1 where a rank has a gradient of the parameter, and else 0.
  int64_t flag() const { return offset + (end - begin + 15) / 16 * 16; }
};

// A unit's places, in elements. Every parameter and piece begins at a multiple of 16.
struct UnitLayout {
  std::vector<int64_t> offsets;  // of each parameter in the unit's memory
  int64_t numel = 0;             // of that memory
  std::vector<Piece> pieces;     // in the order of ranks, and of parameters within
  std::vector<int64_t> slices;   // rank r's pieces are in [slices[r], slices[r + 1]) of the buffer of gradients
  int64_t share = 0;             // the elements of the pieces that a rank publishes, packed; the same for each rank
  bool in_order = true;          // the shares of all ranks, one after the other, are the unit's memory
  // The gradients are reduced in `chunks` chunks, one after the other, of at most `chunk_numel` elements. Chunk i has the
  // elements [i * n, (i + 1) * n) of what each rank adds up, with n = ChunkNumel(number of these).
  int chunks = 1;
  int64_t chunk_numel = 0;
  int64_t ChunkNumel(int64_t numel) const;
};

// Each slice can be divided into `replicas` equal parts that begin at multiples of 16.
UnitLayout LayOut(const std::vector<ParameterInfo>& parameters, int ranks, Shard shard, int replicas = 1);

// Sets the number of chunks so that each has about `most` elements, or fewer.
void CutIntoChunks(int64_t most, int replicas, UnitLayout* layout);

// Elements of one parameter that are on two ranks.
struct KeptPiece {
  int parameter = 0;           // its place in the unit
  int64_t begin = 0, end = 0;  // in the parameter's memory
  int owner = 0, second = 0;   // equal: on one rank
};

// The layout with these pieces. The buffer of gradients has a piece's elements in the slices of both ranks, and its owner
// publishes it.
UnitLayout LayOut(const std::vector<ParameterInfo>& parameters, int ranks, const std::vector<KeptPiece>& kept);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_PLAN_H_
