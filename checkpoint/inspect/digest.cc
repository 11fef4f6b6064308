#include "lockstep/checkpoint/inspect/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/inspect/leaves.h"

namespace lockstep::checkpoint::inspect {
namespace {

// In hexadecimal.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }

  Sha256& Add(const void* data, size_t bytes) {
    EVP_DigestUpdate(context_.get(), data, bytes);
    return *this;
  }
  std::string Finish() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
    return absl::BytesToHexString(absl::string_view(digest).substr(0, size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Short() has the dtype and the shape.
std::string DigestOf(const Value& value) {
  const std::string header = absl::StrCat(Short(value), "\n");
  const at::Tensor elements = value.tensor().detach().resolve_conj().resolve_neg().contiguous();
  return Sha256().Add(header.data(), header.size()).Add(elements.const_data_ptr(), elements.nbytes()).Finish();
}

}  // namespace

absl::StatusOr<std::string> DigestText(const Value& value) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Leaf> leaves, Leaves(value));
  std::stable_sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) { return a.name < b.name; });
  std::string text;
  for (const Leaf& leaf : leaves) {
    if (leaf.value.is_tensor()) absl::StrAppend(&text, DigestOf(leaf.value), "  ", absl::CHexEscape(leaf.name), "\n");
  }
  return absl::StrCat(text, Sha256().Add(text.data(), text.size()).Finish(), "  all tensors\n");
}

}  // namespace lockstep::checkpoint::inspect
