#include "lockstep/ddp/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <optional>

namespace lockstep::ddp {
namespace {

// Checked before anything is changed: if the constructor throws, the destructor does not restore anything.
c10::DeviceType Checked(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype) {
  TORCH_CHECK_VALUE(device_type == c10::kCPU || device_type == c10::kCUDA,
                    "Autocast: expected the device type cpu or cuda, found ", device_type);
  TORCH_CHECK_VALUE(!dtype.has_value() || *dtype == c10::kHalf || *dtype == c10::kBFloat16,
                    "Autocast: expected the dtype Half or BFloat16, found ", *dtype);
  return device_type;
}

}  // namespace

Autocast::Autocast(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype, bool enabled,
                   std::optional<bool> cache_enabled)
    : device_type_(Checked(device_type, dtype)),
      former_dtype_(at::autocast::get_autocast_dtype(device_type)),
      formerly_enabled_(at::autocast::is_autocast_enabled(device_type)),
      cache_formerly_enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_enabled(device_type_, enabled);
  at::autocast::set_autocast_dtype(device_type_, dtype.value_or(former_dtype_));
  at::autocast::set_autocast_cache_enabled(cache_enabled.value_or(cache_formerly_enabled_));
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, formerly_enabled_);
  at::autocast::set_autocast_dtype(device_type_, former_dtype_);
  at::autocast::set_autocast_cache_enabled(cache_formerly_enabled_);
}

}  // namespace lockstep::ddp
