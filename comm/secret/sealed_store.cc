#include "lockstep/comm/secret/sealed_store.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::comm {
namespace {

std::string Text(const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); }
std::vector<uint8_t> Bytes(const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); }

int64_t Number(const std::string& key, const std::string& text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  throw StatusError(absl::InvalidArgumentError(absl::StrCat("add: \"", key, "\" does not hold a number")));
}

}  // namespace

SealedStore::SealedStore(c10::intrusive_ptr<c10d::Store> store, JobSecret secret)
    : store_(std::move(store)), secret_(std::move(secret)) {}

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  return c10::make_intrusive<SealedStore>(store_->clone(), secret_);
}
#endif

std::string SealedStore::Open(const std::string& key, const std::string& sealed) const {
  auto value = secret_.Open(key, sealed);
  ThrowIfError(value.status());
  return *std::move(value);
}

void SealedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(key, secret_.Seal(key, Text(value)));
}

std::vector<uint8_t> SealedStore::get(const std::string& key) { return Bytes(Open(key, store_->get_to_str(key))); }

std::vector<std::vector<uint8_t>> SealedStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values = store_->multiGet(keys);
  for (size_t i = 0; i < keys.size(); ++i) values[i] = Bytes(Open(keys[i], Text(values[i])));
  return values;
}

// Sealing a value twice gives different bytes, so the store cannot compare values. It compares the sealed value that
// was read here.
std::string SealedStore::CompareSet(const std::string& key, const std::string& expected, const std::string& desired) {
  std::string before;
  if (!expected.empty()) {
    if (!store_->check({key})) return expected;  // as c10d's stores do
    before = store_->get_to_str(key);
    const std::string value = Open(key, before);
    if (value != expected) return value;
  }
  const std::string sealed = secret_.Seal(key, desired);
  const std::string now = store_->compareSet(key, before, sealed);
  return now == sealed ? desired : Open(key, now);
}

std::vector<uint8_t> SealedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& desired) {
  return Bytes(CompareSet(key, Text(expected), Text(desired)));
}

int64_t SealedStore::add(const std::string& key, int64_t amount) {
  const absl::Time deadline = absl::Now() + absl::FromChrono(getTimeout());
  std::string before = store_->check({key}) ? store_->get_to_str(key) : "";
  do {
    const int64_t sum = amount + (before.empty() ? 0 : Number(key, Open(key, before)));
    if (amount == 0 && !before.empty()) return sum;
    const std::string sealed = secret_.Seal(key, absl::StrCat(sum));
    const std::string now = store_->compareSet(key, before, sealed);
    if (now == sealed) return sum;
    // Another rank came first. If the value seems unchanged, the key was deleted.
    before = now == before ? "" : now;
  } while (absl::Now() < deadline);
  throw StatusError(absl::DeadlineExceededError(absl::StrCat("add: others change \"", key, "\" all the time")));
}

c10::intrusive_ptr<c10d::Store> Sealed(c10::intrusive_ptr<c10d::Store> store, const std::optional<JobSecret>& secret) {
  if (!secret) return store;
  return c10::make_intrusive<SealedStore>(std::move(store), *secret);
}

}  // namespace lockstep::comm
