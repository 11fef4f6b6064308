#include "lockstep/fsdp/testing/simulated_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace lockstep::fsdp::testing {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

thread_local int64_t current_stream = 0;
thread_local bool in_operator = false;  // which computes on the host
std::atomic<int64_t> next_stream{1}, stream_waits{0}, host_waits{0};

void HostWait() {
  if (!in_operator) ++host_waits;
}

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream StreamOf(int64_t id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return StreamOf(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return StreamOf(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return StreamOf(next_stream.fetch_add(1)); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return StreamOf(std::exchange(current_stream, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    static int any;
    *event = &any;
  }
  void block(void*, const c10::Stream&) const override { ++stream_waits; }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { HostWait(); }
  void synchronizeEvent(void*) const override { HostWait(); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

// autograd asks for the machine's accelerator.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};
[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("simulated");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = c10::GetCPUAllocator()->raw_allocate(bytes);
    return {data, data, raw_deleter(), kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* data) { c10::GetCPUAllocator()->raw_deallocate(data); };
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { memcpy(to, from, bytes); }
};
DeviceAllocator allocator;

at::Tensor Empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(c10::get_default_dtype_as_scalartype()), format);
}

at::Tensor EmptyStrided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

// The tensor's elements, as a tensor of the CPU.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.is_cpu()) HostWait();
  OnHost(to).copy_(OnHost(from));
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.numel() == 0) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

const at::Tensor& Resize(const at::Tensor& self, c10::SymIntArrayRef sizes, std::optional<at::MemoryFormat>) {
  const auto shape = C10_AS_INTARRAYREF_SLOW(sizes);
  const size_t bytes = c10::multiply_integers(shape) * self.element_size();
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (storage->nbytes() < bytes) {
    storage->set_data_ptr_noswap(allocator.allocate(bytes));
    storage->set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return self;
}

at::Scalar LocalScalar(const at::Tensor& self) {
  HostWait();
  return OnHost(self).item();
}

at::Tensor AsStrided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                     std::optional<c10::SymInt> offset) {
  std::optional<int64_t> begin;
  if (offset) begin = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                           begin);
}

at::Tensor View(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor ReshapeAlias(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

// Numbers without dimensions may be on the CPU, as for a GPU.
void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (!argument.isTensor()) continue;
    const at::Tensor& tensor = argument.toTensor();
    TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0, op.schema().name(),
                ": expected all tensors on one device, found one on the CPU");
  }
  const bool outer = std::exchange(in_operator, true);
  const absl::Cleanup restore = [outer] { in_operator = outer; };
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("as_strided", &AsStrided);
  library.impl("view", &View);
  library.impl("_reshape_alias", &ReshapeAlias);
  library.impl("resize_", &Resize);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("_local_scalar_dense", &LocalScalar);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace

int64_t StreamWaits() { return stream_waits; }
int64_t HostWaits() { return host_waits; }

}  // namespace lockstep::fsdp::testing
