// Finds and replaces the tensors inside a value of almost any type, such as a module's arguments and results.
//
//   auto on_gpu = MapTensors(batch, [](const at::Tensor& t) { return t.to("cuda:0"); });   // a copy of `batch`
//   ForEachTensor(output, [](const at::Tensor& t) { ... });
//
// These are searched, to any depth: at::Tensor, c10::IValue, std::optional, std::vector, std::array, std::pair,
// std::tuple, std::map and std::unordered_map (their values, in the order of their keys). To make your own type
// searchable, define this function in its namespace:
//
//   template <typename F>
//   Output MapTensors(const Output& output, F&& f) { return {f(output.logits), f(output.loss)}; }
//
// For all other types kMayHoldTensors is false, and their values do not change.

#ifndef LOCKSTEP_BASE_TENSORS_H_
#define LOCKSTEP_BASE_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

namespace internal_tensors {

// Specialised for each type that may contain tensors.
template <typename T, typename = void>
struct Tensors {
  static constexpr bool kMayHold = false;
};

template <typename T>
inline constexpr bool kMayHold = Tensors<std::decay_t<T>>::kMayHold;

template <typename T>
T Map(const T& value, const TensorFunction& f) {
  if constexpr (kMayHold<T>) {
    return Tensors<T>::Map(value, f);
  } else {
    return value;
  }
}

template <>
struct Tensors<at::Tensor> {
  static constexpr bool kMayHold = true;
  static at::Tensor Map(const at::Tensor& value, const TensorFunction& f) { return f(value); }
};

template <>
struct Tensors<c10::IValue> {
  static constexpr bool kMayHold = true;
  static c10::IValue Map(const c10::IValue& value, const TensorFunction& f) {
    if (value.isTensor()) return f(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(f(tensor));
      return list;
    }
    if (value.isTuple()) {
      std::vector<c10::IValue> elements;
      for (const c10::IValue& element : value.toTupleRef().elements()) elements.push_back(Map(element, f));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    if (value.isList()) {
      c10::impl::GenericList list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) list.push_back(Map(element, f));
      return list;
    }
    if (value.isGenericDict()) {
      const auto& from = value.toGenericDict();
      c10::impl::GenericDict dict(from.keyType(), from.valueType());
      for (const auto& entry : from) dict.insert(entry.key(), Map(entry.value(), f));
      return dict;
    }
    return value;
  }
};

template <typename T>
struct Tensors<std::optional<T>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<T>;
  static std::optional<T> Map(const std::optional<T>& value, const TensorFunction& f) {
    return value ? std::optional<T>(internal_tensors::Map(*value, f)) : std::nullopt;
  }
};

template <typename T>
struct Tensors<std::vector<T>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<T>;
  static std::vector<T> Map(const std::vector<T>& value, const TensorFunction& f) {
    std::vector<T> out;
    out.reserve(value.size());
    for (const T& element : value) out.push_back(internal_tensors::Map(element, f));
    return out;
  }
};

template <typename T, size_t N>
struct Tensors<std::array<T, N>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<T>;
  static std::array<T, N> Map(const std::array<T, N>& value, const TensorFunction& f) {
    return std::apply([&](const auto&... element) { return std::array<T, N>{internal_tensors::Map(element, f)...}; },
                      value);
  }
};

template <typename A, typename B>
struct Tensors<std::pair<A, B>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<A> || internal_tensors::kMayHold<B>;
  static std::pair<A, B> Map(const std::pair<A, B>& value, const TensorFunction& f) {
    return {internal_tensors::Map(value.first, f), internal_tensors::Map(value.second, f)};
  }
};

template <typename... T>
struct Tensors<std::tuple<T...>> {
  static constexpr bool kMayHold = (internal_tensors::kMayHold<T> || ...);
  static std::tuple<T...> Map(const std::tuple<T...>& value, const TensorFunction& f) {
    // Braces evaluate from left to right.
    return std::apply([&](const auto&... element) { return std::tuple<T...>{internal_tensors::Map(element, f)...}; },
                      value);
  }
};

template <typename K, typename V>
struct Tensors<std::map<K, V>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<V>;
  static std::map<K, V> Map(const std::map<K, V>& value, const TensorFunction& f) {
    std::map<K, V> out;
    for (const auto& entry : value) out.emplace(entry.first, internal_tensors::Map(entry.second, f));
    return out;
  }
};

// In the order of the keys, so that maps with the same keys are visited in the same order, however they were filled.
template <typename K, typename V>
struct Tensors<std::unordered_map<K, V>> {
  static constexpr bool kMayHold = internal_tensors::kMayHold<V>;
  static std::unordered_map<K, V> Map(const std::unordered_map<K, V>& value, const TensorFunction& f) {
    std::vector<const std::pair<const K, V>*> entries;
    for (const auto& entry : value) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    std::unordered_map<K, V> out;
    for (const auto* entry : entries) out.emplace(entry->first, internal_tensors::Map(entry->second, f));
    return out;
  }
};

// A type whose namespace has a function MapTensors().
template <typename T>
struct Tensors<T, std::void_t<decltype(MapTensors(std::declval<const T&>(), std::declval<const TensorFunction&>()))>> {
  static constexpr bool kMayHold = true;
  static T Map(const T& value, const TensorFunction& f) { return MapTensors(value, f); }
};

}  // namespace internal_tensors

// True if MapTensors() searches values of type T.
template <typename T>
inline constexpr bool kMayHoldTensors = internal_tensors::kMayHold<T>;

// Returns a copy of `value` in which each tensor t, from left to right, is replaced by f(t). This includes undefined
// tensors.
template <typename T>
T MapTensors(const T& value, const TensorFunction& f) {
  return internal_tensors::Map(value, f);
}

// Calls f with each tensor in `value`, from left to right.
template <typename T, typename F>
void ForEachTensor(const T& value, F&& f) {
  internal_tensors::Map(value, [&](const at::Tensor& tensor) {
    f(tensor);
    return tensor;
  });
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TENSORS_H_
