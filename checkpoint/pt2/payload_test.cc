#include "lockstep/checkpoint/pt2/payload.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint::pt2 {
namespace {

constexpr char kText[] =
    R"({"config":{"b":{"path_name":"weight_0","is_param":true,"use_pickle":false,"tensor_meta":{"dtype":7,)"
    R"("sizes":[{"as_int":2},{"as_int":3}],"requires_grad":true,"device":{"type":"cuda","index":1},)"
    R"("strides":[{"as_int":3},{"as_int":1}],"storage_offset":{"as_int":4},"layout":7}},)"
    R"("a":{"path_name":"weight_1","is_param":false,"use_pickle":true,"tensor_meta":null}}})";

TEST(Payload, AreReadInTheirOrderAndWrittenAgain) {
  const absl::StatusOr<std::vector<Payload>> payloads = ParsePayloads(kText);
  ASSERT_TRUE(payloads.ok()) << payloads.status();
  ASSERT_EQ(payloads->size(), 2);
  const Payload &first = (*payloads)[0], &second = (*payloads)[1];
  EXPECT_EQ(first.name, "b");
  EXPECT_TRUE(first.is_parameter);
  EXPECT_EQ(first.tensor->sizes[1].number, 3);
  EXPECT_EQ(first.tensor->storage_offset.number, 4);
  EXPECT_EQ(first.tensor->device.index, 1);
  EXPECT_EQ(second.record, "weight_1");
  EXPECT_TRUE(second.pickled);
  EXPECT_FALSE(second.tensor.has_value());
  EXPECT_EQ(PayloadsText(*payloads), kText);
}

TEST(Payload, ErrorsNameTheTensor) {
  std::string text = kText;
  text.replace(text.find("\"as_int\":2"), 10, "\"as_int\":-2");
  EXPECT_EQ(ParsePayloads(text).status(), absl::DataLossError("\"b\": a size, stride or offset is -2"));
  EXPECT_EQ(ParsePayloads(R"({"config": {"b": {}}})").status(),
            absl::DataLossError("\"b\": field \"path_name\" is missing"));
}

TEST(Payload, SizesMayBeSymbols) {
  const absl::StatusOr<Json> meta = ParseJson(R"JSON({"dtype": 7, "sizes": [
      {"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)"}}, {"as_expr": {"expr_str": "2*s77"}}],
      "requires_grad": false, "device": {"type": "cpu"}, "strides": [{"as_int": 1}, {"as_int": 1}],
      "storage_offset": {"as_int": 0}, "layout": 7})JSON");
  ASSERT_TRUE(meta.ok()) << meta.status();
  JsonReader json;
  const TensorMeta parsed = ParseTensorMeta(json, *meta);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(parsed.sizes[0].symbol, "s77");
  EXPECT_EQ(parsed.sizes[1].symbol, "");
  EXPECT_EQ(parsed.sizes[1].number, -1);
}

}  // namespace
}  // namespace lockstep::checkpoint::pt2
