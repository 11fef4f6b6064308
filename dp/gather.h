// The last part of DataParallel: combines the devices' outputs into one.

#ifndef LOCKSTEP_DP_GATHER_H_
#define LOCKSTEP_DP_GATHER_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/tensors.h"

namespace lockstep::dp {

namespace internal {

// The device and the dimension for gathering.
struct GatherTarget {
  c10::Device device;
  int64_t dim;
};

at::Tensor GatherTensors(const std::vector<at::Tensor>& parts, const GatherTarget& target);
c10::IValue GatherIValues(const std::vector<c10::IValue>& parts, const GatherTarget& target);

// Throws c10::ValueError unless all sizes at one level of the outputs are equal.
void CheckSizes(const char* what, const std::vector<size_t>& sizes);
[[noreturn]] void ThrowMissingKey(size_t replica);

// How outputs of type T are gathered. Specialised for each type, as in base/tensors.h. Without a specialisation, a
// value that is not a tensor is the first replica's.
template <typename T, typename = void>
struct Gathering {
  static T Gather(const std::vector<T>& parts, const GatherTarget& target);
};

template <typename T>
T GatherParts(const std::vector<T>& parts, const GatherTarget& target) {
  return Gathering<T>::Gather(parts, target);
}

// Gathers get(part) over all parts.
template <typename T, typename Get>
auto GatherEach(const std::vector<T>& parts, const GatherTarget& target, Get&& get) {
  std::vector<std::decay_t<decltype(get(parts[0]))>> members;
  members.reserve(parts.size());
  for (const T& part : parts) members.push_back(get(part));
  return GatherParts(members, target);
}

template <typename T>
void CheckSameSize(const char* what, const std::vector<T>& parts) {
  std::vector<size_t> sizes;
  for (const T& part : parts) sizes.push_back(part.size());
  CheckSizes(what, sizes);
}

// For a user-defined type, which exposes only its tensors.
template <typename T, typename Enable>
T Gathering<T, Enable>::Gather(const std::vector<T>& parts, const GatherTarget& target) {
  if constexpr (!kMayHoldTensors<T>) {
    return parts[0];
  } else {
    std::vector<std::vector<at::Tensor>> tensors(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      ForEachTensor(parts[i], [&](const at::Tensor& tensor) { tensors[i].push_back(tensor); });
    }
    CheckSameSize("tensors", tensors);
    size_t next = 0;
    return MapTensors(parts[0], [&](const at::Tensor&) {
      const size_t i = next++;
      return GatherEach(tensors, target, [i](const auto& part) { return part[i]; });
    });
  }
}

template <>
struct Gathering<at::Tensor> {
  static at::Tensor Gather(const std::vector<at::Tensor>& parts, const GatherTarget& target) {
    return GatherTensors(parts, target);
  }
};

template <>
struct Gathering<c10::IValue> {
  static c10::IValue Gather(const std::vector<c10::IValue>& parts, const GatherTarget& target) {
    return GatherIValues(parts, target);
  }
};

template <typename T>
struct Gathering<std::optional<T>> {
  static std::optional<T> Gather(const std::vector<std::optional<T>>& parts, const GatherTarget& target) {
    std::vector<size_t> values;
    for (const auto& part : parts) values.push_back(part.has_value());
    CheckSizes("optional values", values);
    if (!parts[0]) return std::nullopt;
    return GatherEach(parts, target, [](const auto& part) { return *part; });
  }
};

template <typename T>
struct Gathering<std::vector<T>> {
  static std::vector<T> Gather(const std::vector<std::vector<T>>& parts, const GatherTarget& target) {
    CheckSameSize("vector elements", parts);
    std::vector<T> out;
    for (size_t i = 0; i < parts[0].size(); ++i) {
      out.push_back(GatherEach(parts, target, [i](const auto& part) -> T { return part[i]; }));
    }
    return out;
  }
};

template <typename... T>
struct Gathering<std::tuple<T...>> {
  static std::tuple<T...> Gather(const std::vector<std::tuple<T...>>& parts, const GatherTarget& target) {
    return Members(parts, target, std::index_sequence_for<T...>());
  }

 private:
  template <size_t... I>
  static std::tuple<T...> Members(const std::vector<std::tuple<T...>>& parts, const GatherTarget& target,
                                  std::index_sequence<I...>) {
    return {GatherEach(parts, target, [](const auto& part) { return std::get<I>(part); })...};
  }
};

template <typename A, typename B>
struct Gathering<std::pair<A, B>> {
  static std::pair<A, B> Gather(const std::vector<std::pair<A, B>>& parts, const GatherTarget& target) {
    return {GatherEach(parts, target, [](const auto& part) { return part.first; }),
            GatherEach(parts, target, [](const auto& part) { return part.second; })};
  }
};

template <typename T, size_t N>
struct Gathering<std::array<T, N>> {
  static std::array<T, N> Gather(const std::vector<std::array<T, N>>& parts, const GatherTarget& target) {
    std::array<T, N> out = parts[0];
    for (size_t i = 0; i < N; ++i) out[i] = GatherEach(parts, target, [i](const auto& part) { return part[i]; });
    return out;
  }
};

template <typename Map>
Map GatherMaps(const std::vector<Map>& parts, const GatherTarget& target) {
  CheckSameSize("map entries", parts);
  Map out;
  for (const auto& entry : parts[0]) {
    std::vector<typename Map::mapped_type> values;
    for (const Map& part : parts) {
      const auto found = part.find(entry.first);
      if (found == part.end()) ThrowMissingKey(values.size());
      values.push_back(found->second);
    }
    out.emplace(entry.first, GatherParts(values, target));
  }
  return out;
}

template <typename K, typename V>
struct Gathering<std::map<K, V>> {
  static std::map<K, V> Gather(const std::vector<std::map<K, V>>& parts, const GatherTarget& target) {
    return GatherMaps(parts, target);
  }
};

template <typename K, typename V>
struct Gathering<std::unordered_map<K, V>> {
  static std::unordered_map<K, V> Gather(const std::vector<std::unordered_map<K, V>>& parts,
                                         const GatherTarget& target) {
    return GatherMaps(parts, target);
  }
};

}  // namespace internal

// Combines the replicas' outputs into one value. Each tensor in it is the concatenation of the replicas' tensors along
// `dim`, in the order of `outputs`, on `device`, to any depth (base/tensors.h). A value that is not a tensor is the
// first replica's.
//
//   at::Tensor logits = Gather(outputs, c10::Device("cuda:0"));
//
// Scalars, which are tensors without dimensions, become a vector with an element for each replica, with PyTorch's
// warning. Differentiable: each replica gets its part of the gradient.
//
// Throws c10::ValueError if `outputs` is empty or they cannot be combined: shapes differ in a dimension other than
// `dim`, some tensors are scalars or undefined, or vectors or maps differ in size or keys. The message names the
// replica.
template <typename T>
T Gather(const std::vector<T>& outputs, c10::Device device, int64_t dim = 0) {
  static_assert(kMayHoldTensors<T>,
                "nothing to gather: base/tensors.h says which types hold tensors, and how to let one's own hold them");
  TORCH_CHECK_VALUE(!outputs.empty(), "Gather: expected one output or more, found none");
  return internal::GatherParts(outputs, internal::GatherTarget{device, dim});
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_GATHER_H_
