// The values of one unit's parameters: this rank's share always, and all of them while they are used.

#ifndef LOCKSTEP_FSDP_INTERNAL_PAGED_UNIT_H_
#define LOCKSTEP_FSDP_INTERNAL_PAGED_UNIT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/fsdp/internal/buffer_pool.h"
#include "lockstep/fsdp/internal/device_streams.h"
#include "lockstep/fsdp/internal/freed_address.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/parameter_key.h"
#include "lockstep/fsdp/internal/sharded_unit.h"

namespace lockstep::fsdp::internal {

class PagedUnit final : public Pageable {
 public:
  // Takes over the parameters' values. `need` is called before an operator uses them; it throws StatusError if they
  // cannot be had. `mesh` is borrowed.
  PagedUnit(const Mesh* mesh, ShardedUnit unit) : mesh_(mesh), unit_(std::move(unit)) {}

  // For Options::debug, before Distribute() or Keep(): a freed parameter has an address, which must not be used. Returns
  // the errors of ReserveFreedAddress().
  absl::Status ReserveAddresses();

  // Gives each rank its share of the values of the shard group's first rank, and frees the parameters. Every rank must
  // call it.
  absl::Status Distribute(const std::shared_ptr<PagedUnit>& self, BufferPool& buffers,
                          std::function<void(PagedUnit&)> need);
  // Instead of Distribute(): the unit's kept shards have the values.
  void Keep(const std::shared_ptr<PagedUnit>& self, std::function<void(PagedUnit&)> need);
  // The parameters may outlive this object's owner. Then an operator on them is an error.
  void Forsake();

  void BeginUse() override;
  void EndUse() override { --uses_; }
  bool in_use() const { return uses_ > 0; }

  // The name of its first parameter.
  const std::string& name() const { return unit_.parameters[0].name; }
  // The name of the first parameter whose data was replaced after Distribute(), and of the first that was written to
  // since Gather(); empty if there is none.
  std::string Replaced() const;
  std::string Written() const;

  // The bytes of all ranks' shares, and so the least size of the buffer in which they are gathered; and such a buffer.
  int64_t bytes() const { return elements() * unit_.parameters[0].tensor.element_size(); }
  at::Tensor NewMemory() const;
  // The bytes of this rank's share, or of its kept shards.
  int64_t own_bytes() const;
  bool in_order() const { return unit_.layout.in_order; }
  at::Tensor Shard(const Piece& piece) const;

  // Gathers all values into `whole`, which has bytes() bytes or more. Every rank must call it.
  absl::Status Gather(const at::Tensor& whole, BufferPool& buffers);
  // Makes `whole` of kept shards, all of which this rank has.
  void Assemble(const at::Tensor& whole);
  // Gather() in two parts, into a buffer of the pool. Between them the other functions may be used, but Gather().
  struct Flight {
    at::Tensor buffer;  // gets all ranks' shares
    comm::Work work;
  };
  Flight StartGather(BufferPool& buffers) const;
  absl::Status FinishGather(Flight flight, BufferPool& buffers);
  // Takes part in a Gather() of the other ranks.
  absl::Status JoinGather(BufferPool& buffers) const;
  bool present() const { return whole_.defined(); }
  // Keeps what was written to this rank's share of the values.
  void KeepWritten();
  // The parameters have no values any more. Returns the tensor that held them: the current stream waits for its uses.
  at::Tensor Free();

 private:
  int64_t elements() const { return mesh_->shard_group()->size() * unit_.layout.share; }
  comm::Work GatherShares(const at::Tensor& all) const;
  void Place(const at::Tensor& shares, const at::Tensor& whole, BufferPool& buffers);
  void Show(const at::Tensor& whole);
  // Calls copy(elements among all ranks' shares, elements of the parameter) for each piece that is published. `all` has
  // all shares.
  void ForPieces(const at::Tensor& all, const std::function<at::Tensor(int parameter)>& flat,
                 const std::function<void(const at::Tensor& shared, const at::Tensor& own)>& copy) const;
  at::Tensor Elements(const at::Tensor& bytes, int64_t numel) const;

  const Mesh* const mesh_;
  ShardedUnit unit_;
  at::Tensor share_;                 // packed; undefined if there are kept shards
  at::Tensor whole_;                 // bytes, while the values are present
  std::vector<uint32_t> versions_;   // of the parameters, when they were gathered
  std::vector<FreedAddress> freed_;  // of the parameters; empty without Options::debug
  std::function<void(PagedUnit&)> need_;
  int uses_ = 0;
  StreamUses streams_;  // of `whole_`
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PAGED_UNIT_H_
