#include "lockstep/fsdp/internal/parameter_key.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace lockstep::fsdp::internal {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::DeferredInit;

// Gives access to a protected member.
struct KeySetOf : c10::TensorImpl {
  static auto Member() { return &KeySetOf::key_set_; }
};

// The context of a parameter's storage, by which an operator finds the values.
using Context = std::shared_ptr<Pageable>;

void DeleteContext(void* context) { delete static_cast<Context*>(context); }

c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

Pageable* ValuesOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kKey) || !tensor.has_storage()) return nullptr;
  const Context* context = StorageOf(tensor)->_mutable_data_ptr_no_checks().cast_context<Context>(&DeleteContext);
  return context ? context->get() : nullptr;
}

// The values that one operator uses.
class Uses {
 public:
  Uses() = default;
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;
  ~Uses() {
    for (Pageable* values : used_) values->EndUse();
  }

  void Add(const c10::IValue& value) {
    if (value.isTensor()) {
      Add(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) Add(element.toTensor());
      }
    }
  }

 private:
  void Add(const at::Tensor& tensor) {
    Pageable* const values = ValuesOf(tensor);
    if (!values || std::find(used_.begin(), used_.end(), values) != used_.end()) return;
    values->BeginUse();
    used_.push_back(values);
  }

  absl::InlinedVector<Pageable*, 4> used_;
};

void CallOperator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Uses uses;
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) uses.Add(argument);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

// Registers CallOperator for all operators, once, so that programs without such parameters do not have it.
void RegisterKey() {
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&CallOperator>());
    return made;
  }();
  (void)library;
}

}  // namespace

void MakePageable(const at::Tensor& parameter, std::shared_ptr<Pageable> values) {
  RegisterKey();
  if (parameter.storage_offset() != 0) {
    const c10::NoGradGuard no_grad;
    at::Tensor(parameter).set_data(parameter.detach().clone());
  }
  StorageOf(parameter)->set_data_ptr_noswap(
      at::DataPtr(nullptr, new Context(std::move(values)), &DeleteContext, parameter.device()));
  StorageOf(parameter)->set_nbytes(0);
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  impl->*KeySetOf::Member() = (impl->*KeySetOf::Member()).add(kKey);
}

void ReplaceData(const at::Tensor& parameter, const at::Tensor& data) {
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  impl->*KeySetOf::Member() = (impl->*KeySetOf::Member()).remove(kKey);
  at::Tensor(parameter).set_data(data);
}

bool IsPageable(const at::Tensor& parameter, const Pageable* values) { return ValuesOf(parameter) == values; }

void SetData(const at::Tensor& parameter, void* data) {
  at::DataPtr& held = StorageOf(parameter)->_mutable_data_ptr_no_checks();
  if (held.get_deleter() != &DeleteContext) return;
  void* const context = held.release_context();
  held = at::DataPtr(data, context, &DeleteContext, parameter.device());
  StorageOf(parameter)->set_nbytes(data ? parameter.numel() * parameter.element_size() : 0);
}

}  // namespace lockstep::fsdp::internal
