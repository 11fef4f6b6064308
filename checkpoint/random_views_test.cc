// Load returns every value that Save accepts: views of random tensors, made by random operators.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/async_saver.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/serialize.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

Value ThroughBytes(const Value& value) {
  const auto bytes = Serialize(value);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) return Value();
  const auto loaded = Deserialize(*bytes);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : Value();
}

// Identical, with the same positions in memory.
void ExpectSameView(const at::Tensor& loaded, const at::Tensor& saved) {
  EXPECT_TRUE(Identical(loaded, saved));
  EXPECT_EQ(loaded.storage_offset(), saved.storage_offset());
  EXPECT_EQ(loaded.strides(), saved.strides());
  EXPECT_EQ(loaded.storage().nbytes(), saved.storage().nbytes());
}

void ExpectComesBack(const std::vector<at::Tensor>& tensors) {
  const Value saved = Value::List({tensors.begin(), tensors.end()});
  const Value loaded = ThroughBytes(saved);
  ASSERT_EQ(loaded.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "item " << i << ": sizes " << tensors[i].sizes() << ", strides "
                                    << tensors[i].strides() << ", offset " << tensors[i].storage_offset());
    ExpectSameView(loaded.items()[i].tensor(), tensors[i]);
    EXPECT_TRUE(loaded.items()[i].tensor().is_alias_of(loaded.items()[0].tensor()));
  }
}

TEST(EmptyViews, MayBeginBehindTheirStorage) {
  const at::Tensor no_rows = at::zeros({0, 4}), no_columns = at::zeros({3, 0});
  for (const at::Tensor& view :
       {no_rows.select(1, 3), no_columns.slice(0, 1), at::zeros({5, 0})[4], no_columns.unbind()[2],
        at::ones({2}).as_strided({0}, {1}, 99), at::zeros({0}).as_strided({3, 0}, {INT64_MAX, 7}, 5),
        no_columns.transpose(0, 1).slice(1, 2)}) {
    ExpectComesBack({view});
  }
  ExpectComesBack({no_rows.select(1, 3), no_rows, no_rows.select(1, 1)});
}

TEST(NegatedViews, MayBeOfIntegers) {
  const at::Tensor integers = at::arange(4);
  ExpectComesBack({integers, at::_neg_view(integers)});
}

TEST(EmptyViews, ComeBackFromEveryKindOfFile) {
  const at::Tensor view = at::zeros({0, 4}).select(1, 3);
  const Value saved =
      Value::Dict({{"parameter", Value::Parameter(view)}, {"bytes", view.to(at::kByte)}, {"one", view}});
  const std::string path = testing::TempDir() + "/empty_views.pt";
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(path, saved, {.sync = false}), absl::OkStatus());
  ASSERT_EQ(saver.Wait(), absl::OkStatus());
  const auto in_background = Load(path, {.map_location = "cpu"});
  ASSERT_TRUE(in_background.ok()) << in_background.status();
  EXPECT_TRUE(Identical(*in_background, saved));
  const std::string safetensors = testing::TempDir() + "/empty_views.safetensors";
  ASSERT_EQ(SaveSafetensors(safetensors, Value::Dict({{"one", view}, {"other", view}})), absl::OkStatus());
  const auto loaded = LoadSafetensors(safetensors);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->tensors.size(), 2);
}

TEST(Save, RefusesATensorThatCouldNotBeLoaded) {
  at::Tensor freed = at::ones({3});
  freed.storage().set_nbytes(0);
  EXPECT_THAT(std::string(Serialize(Value::Dict({{"w", freed}})).status().message()),
              HasSubstr("[\"w\"]: a tensor reaches element 0 + 3 of a storage of 0"));
  EXPECT_THAT(std::string(Serialize(at::empty(std::vector<int64_t>(65, 1))).status().message()),
              HasSubstr("65 dimensions"));
}

class RandomViews {
 public:
  explicit RandomViews(int seed) : random_(seed) {}

  at::Tensor Base() {
    static constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble,       at::kHalf,          at::kBFloat16,
                                                at::kLong,  at::kByte,         at::kBool,          at::kUInt16,
                                                at::kInt,   at::kComplexFloat, at::kComplexDouble, at::kFloat8_e5m2};
    std::vector<int64_t> sizes(Below(5));
    for (int64_t& size : sizes) size = Below(4);
    const at::Tensor base = at::empty(sizes, kTypes[Below(std::size(kTypes))]);
    for (size_t i = 0; i < base.nbytes(); ++i) static_cast<char*>(base.data_ptr())[i] = Below(2);
    return base;
  }

  at::Tensor ViewOf(at::Tensor tensor) {
    for (int64_t steps = Below(5); steps > 0; --steps) tensor = Step(tensor);
    return tensor;
  }

  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % end); }

 private:
  at::Tensor Step(const at::Tensor& tensor) {
    if (Below(6) == 0) return Restrided(tensor);
    if (Below(8) == 0 && tensor.is_complex()) return tensor.conj();
    if (tensor.dim() == 0) return tensor.expand({Below(4), Below(3)});
    const int64_t dim = Below(tensor.dim()), size = tensor.size(dim);
    switch (Below(6)) {
      case 0:
        return size == 0 ? tensor.unsqueeze(dim) : tensor.select(dim, Below(size));
      case 1:
        return tensor.slice(dim, Below(size + 1), size, 1 + Below(2));
      case 2:
        return tensor.transpose(dim, Below(tensor.dim()));
      case 3:
        return size == 0 ? tensor.squeeze() : tensor.unbind(dim)[Below(size)];
      case 4:
        return tensor.unsqueeze(dim).expand(Widened(tensor, dim));
      default:
        return tensor.narrow(dim, Below(size + 1), 0);
    }
  }

  std::vector<int64_t> Widened(const at::Tensor& tensor, int64_t dim) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes.insert(sizes.begin() + dim, Below(4));
    return sizes;
  }

  // Any offset in the storage; without elements, any offset at all.
  at::Tensor Restrided(const at::Tensor& tensor) {
    const auto available = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
    if (available < 6 || Below(2) == 0) return tensor.as_strided({Below(3), 0}, {Below(9), Below(9)}, Below(99));
    return tensor.as_strided({2, 2}, {Below(3), Below(3)}, Below(available - 4));
  }

  std::mt19937 random_;
};

TEST(RandomViews, ComeBackAsTheyWereSaved) {
  for (int seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomViews random(seed);
    const at::Tensor base = random.Base();
    std::vector<at::Tensor> views = {base};
    for (int64_t count = random.Below(4); count > 0; --count) views.push_back(random.ViewOf(base));
    ExpectComesBack(views);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RandomViews, ComeBackAsSafetensors) {
  const std::string path = testing::TempDir() + "/random_views.safetensors";
  Value views = Value::Dict();
  for (int seed = 0; seed < 200; ++seed) {
    RandomViews random(seed);
    const at::Tensor view = random.ViewOf(random.Base());
    if (view.scalar_type() != at::kComplexDouble) views.Set(absl::StrCat(seed), view);
  }
  ASSERT_EQ(SaveSafetensors(path, views, {}, {.sync = false}), absl::OkStatus());
  const auto loaded = LoadSafetensors(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const auto& [name, view] : views.entries()) {
    EXPECT_TRUE(Identical(*loaded->tensors.Find(name), view.tensor().resolve_conj().contiguous()))
        << name.string_value();
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
