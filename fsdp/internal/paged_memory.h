// The parameters in private memory, on a CPU or a GPU: each rank keeps a share of each unit, and has all of a unit's values
// only while they are used.

#ifndef LOCKSTEP_FSDP_INTERNAL_PAGED_MEMORY_H_
#define LOCKSTEP_FSDP_INTERNAL_PAGED_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/paged_unit.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_unit.h"
#include "lockstep/fsdp/internal/unit_prefetch.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

// A unit is gathered from the ranks of the shard group when an operator uses one of its parameters. It is freed when
// its gradients have been accumulated, at the end of backward, or when another unit is gathered: then
// Options::whole_units stay, with that one. Since a gather needs all of them, parameters may be used between forward
// and AfterStep(), or in a forward without gradients, only.
class PagedMemory final : public ParameterMemory {
 public:
  // Frees the memory of all parameters. Their values become the ones that the shard group's first rank had. `mesh` is
  // borrowed. Every rank must call it. InvalidArgument: another tensor holds a parameter's memory. If it `keeps`, the
  // units' kept shards have the values, which this rank gives the others at each gather, and whatever memory the
  // parameters had is left.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(const Mesh* mesh,
                                                                 const std::vector<ShardedUnit>& units,
                                                                 const Options& options, bool keeps);
  ~PagedMemory() override;

  at::Tensor Shard(size_t unit, const Piece& piece) const override { return units_[unit]->Shard(piece); }
  Bytes bytes() const override;
  // A reduction is waited for: the next unit is gathered after it anyway, and can have its memory. On a GPU a stream waits,
  // and the next unit takes another buffer if there is one.
  size_t reductions() const override { return 0; }
  void BeforeUse(const std::function<void()>& next) override { before_use_ = next; }

  void BeginForward() override;
  void EndForward() override;
  void EndUnit(size_t unit) override { FreeIfUnused(*units_[unit]); }
  void EndBackward() override { FreeAll(); }
  absl::Status BeforeReduction(size_t unit, bool brings) override;
  absl::Status BeginFull(bool write) override;
  absl::Status EndFull() override;
  void Assemble(bool has_all) override;
  void BeginShards() override;
  void EndShards() override { shards_only_ = false; }
  absl::Status AfterStep() override;

 private:
  struct Ahead {
    PagedUnit* unit;
    PagedUnit::Flight flight;
  };
  struct Present {
    PagedUnit* unit;
    bool pooled;  // its values are in one of buffers()
  };

  PagedMemory(const Mesh* mesh, int64_t buffer_bytes, c10::Device device, std::vector<std::string> names,
              int whole_units, bool prefetches)
      : ParameterMemory(mesh->group(), buffer_bytes, device),
        mesh_(mesh),
        device_(device),
        whole_units_(whole_units),
        prefetch_(mesh, std::move(names), prefetches) {}
  absl::Status Distribute(const std::vector<ShardedUnit>& units, bool keeps, bool debug);

  void Need(PagedUnit& unit, size_t index);
  // The unit is gathered now, by all ranks.
  absl::Status Gather(PagedUnit& unit, size_t index);
  absl::Status GatherAll();
  void MakeRoom(const PagedUnit* unit);
  void FreeIfUnused(PagedUnit& unit);
  absl::Status Settle(const PagedUnit* unit);
  void DropAhead();
  bool Has(size_t unit) const;
  void FreeAll();
  std::string Who() const;

  const Mesh* const mesh_;
  const c10::Device device_;
  const int whole_units_;
  UnitPrefetch prefetch_;
  std::function<void()> before_use_;
  std::vector<std::shared_ptr<PagedUnit>> units_;
  std::vector<Present> present_;  // in the order of their last use
  std::vector<Ahead> ahead_;      // units that are being gathered before they are used
  bool training_ = false;         // between a forward with gradients and AfterStep()
  int evaluations_ = 0;           // forwards without gradients
  bool full_ = false, writes_ = false;
  bool assembled_ = false;    // all units are present on this rank alone
  bool shards_only_ = false;  // operators take parameters without values
  absl::Status written_;      // the parameter that was written to, but not kept
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PAGED_MEMORY_H_
