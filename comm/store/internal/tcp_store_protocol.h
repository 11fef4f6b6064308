#ifndef LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_PROTOCOL_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_PROTOCOL_H_

#include <cstdint>

// LibTorch 2.15 has it in the folder store, and Debian's LibTorch lacks it.
#if __has_include(<torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>
#define LOCKSTEP_HAS_TCP_STORE_BACKEND
#elif __has_include(<torch/csrc/distributed/c10d/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#define LOCKSTEP_HAS_TCP_STORE_BACKEND
#endif

namespace lockstep::comm::internal {

// The numbers in the messages to and from a c10d::TCPStore's server.
constexpr uint32_t kValidationMagicNumber = 0x3C85F7CE;

enum class QueryType : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kGetNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
};

enum class CheckResponseType : uint8_t { kReady, kNotReady };
enum class WaitResponseType : uint8_t { kStopWaiting, kWaitCanceled };

#ifdef LOCKSTEP_HAS_TCP_STORE_BACKEND
template <typename Ours, typename Theirs>
constexpr bool Same(Ours ours, Theirs theirs) {
  return static_cast<uint8_t>(ours) == static_cast<uint8_t>(theirs) && sizeof(Ours) == sizeof(Theirs);
}
static_assert(kValidationMagicNumber == c10d::detail::validationMagicNumber);
static_assert(Same(QueryType::kValidate, c10d::detail::QueryType::VALIDATE));
static_assert(Same(QueryType::kSet, c10d::detail::QueryType::SET));
static_assert(Same(QueryType::kCompareSet, c10d::detail::QueryType::COMPARE_SET));
static_assert(Same(QueryType::kGet, c10d::detail::QueryType::GET));
static_assert(Same(QueryType::kAdd, c10d::detail::QueryType::ADD));
static_assert(Same(QueryType::kCheck, c10d::detail::QueryType::CHECK));
static_assert(Same(QueryType::kWait, c10d::detail::QueryType::WAIT));
static_assert(Same(QueryType::kGetNumKeys, c10d::detail::QueryType::GETNUMKEYS));
static_assert(Same(QueryType::kDeleteKey, c10d::detail::QueryType::DELETE_KEY));
static_assert(Same(QueryType::kAppend, c10d::detail::QueryType::APPEND));
static_assert(Same(QueryType::kMultiGet, c10d::detail::QueryType::MULTI_GET));
static_assert(Same(QueryType::kMultiSet, c10d::detail::QueryType::MULTI_SET));
static_assert(Same(QueryType::kCancelWait, c10d::detail::QueryType::CANCEL_WAIT));
static_assert(Same(QueryType::kPing, c10d::detail::QueryType::PING));
static_assert(Same(CheckResponseType::kReady, c10d::detail::CheckResponseType::READY));
static_assert(Same(CheckResponseType::kNotReady, c10d::detail::CheckResponseType::NOT_READY));
static_assert(Same(WaitResponseType::kStopWaiting, c10d::detail::WaitResponseType::STOP_WAITING));
static_assert(Same(WaitResponseType::kWaitCanceled, c10d::detail::WaitResponseType::WAIT_CANCELED));
#undef LOCKSTEP_HAS_TCP_STORE_BACKEND
#endif

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_TCP_STORE_PROTOCOL_H_
