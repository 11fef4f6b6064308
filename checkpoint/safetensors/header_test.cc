#include "lockstep/checkpoint/safetensors/header.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint::safetensors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(&bytes[0], &length, 8);
  return bytes + rest;
}

absl::StatusOr<SafetensorsHeader> ReadBytes(const std::string& bytes, size_t memory_limit = 1 << 20) {
  const file::ByteSource source{bytes.size(), [&](uint64_t offset, void* to, size_t count) {
                                  EXPECT_LE(offset + count, bytes.size());
                                  std::memcpy(to, bytes.data() + offset, count);
                                  return absl::OkStatus();
                                }};
  return ReadSafetensorsHeader(source, memory_limit);
}

absl::StatusOr<SafetensorsHeader> Read(const std::string& json, size_t data_size = 0) {
  return ReadBytes(WithLength(json.size(), json) + std::string(data_size, '\0'));
}

std::string WhyNot(const std::string& json, size_t data_size = 0) {
  return std::string(Read(json, data_size).status().message());
}

// The error of a file with a float32 "a" of 8 bytes, in whose header `from` is replaced by `to`.
std::string WhyNotWith(const std::string& from, const std::string& to) {
  std::string json = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  json.replace(json.find(from), from.size(), to);
  return WhyNot(json, 8);
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto header = Read(R"({"b": {"data_offsets": [8, 16], "shape": [2, 2, 1], "dtype": "BF16"},
      "__metadata__": {"format": "pt", "": "x"}, "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
      "c": {"dtype": "F64", "shape": [0, 3], "data_offsets": [8, 8]}}  )",
                           16);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->metadata, ElementsAre(Pair("format", "pt"), Pair("", "x")));
  ASSERT_EQ(header->tensors.size(), 3);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype->torch, "int64");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre());
  EXPECT_EQ(header->tensors[1].name, "c");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(0, 3));
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_THAT(header->tensors[2].shape, ElementsAre(2, 2, 1));
  EXPECT_EQ(header->tensors[2].begin, 8);
  EXPECT_EQ(header->tensors[2].end, 16);
}

TEST(SafetensorsHeader, AFileWithoutTensorsIsFine) { EXPECT_TRUE(Read("{}").ok()); }

TEST(SafetensorsHeader, ReadsEscapes) {
  const auto header = Read(R"({"__metadata__":{"\"\\\/\b\f\n\r\t":"\u0041\u00e9\u20AC\ud83d\uDE00"}})");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->metadata, ElementsAre(Pair("\"\\/\b\f\n\r\t", "A\u00e9\u20ac\U0001f600")));
}

TEST(SafetensorsHeader, TheLengthIsChecked) {
  const auto why = [](const std::string& bytes) { return std::string(ReadBytes(bytes).status().message()); };
  EXPECT_EQ(why(""), "no safetensors file: it has less than 8 bytes");
  EXPECT_EQ(why(WithLength(100, "{}")),
            "the header should have 100 bytes and the file has 10; it is truncated or no safetensors file");
  EXPECT_EQ(
      why(WithLength(100'000'001, "{}")),
      "no safetensors file: it should begin with the header's length, at most 100000000, and begins with 100000001");
  EXPECT_EQ(why(WithLength(UINT64_MAX, "{}")),
            "no safetensors file: it should begin with the header's length, at most 100000000, and begins with "
            "18446744073709551615");
  EXPECT_EQ(why(WithLength(0, "")), "no safetensors file: the header does not begin with '{'");
  EXPECT_EQ(why(WithLength(3, " {}")), "no safetensors file: the header does not begin with '{'");
  EXPECT_EQ(why("PK\x03\x04 and so on"), "a zip archive, such as a .pt file; use Load");
}

TEST(SafetensorsHeader, OverlapsAndHolesAreRefused) {
  const auto two = [](const char* first, const char* second) {
    return absl::StrCat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", first,
                        R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)", second, "}}");
  };
  EXPECT_EQ(WhyNot(two("[0,4]", "[4,8]"), 8), "");
  EXPECT_EQ(WhyNot(two("[4,8]", "[0,4]"), 8), "");
  EXPECT_EQ(WhyNot(two("[0,4]", "[3,7]"), 7), "header: tensor \"b\" overlaps the one before it");
  EXPECT_EQ(WhyNot(two("[0,4]", "[0,4]"), 4), "header: tensor \"b\" overlaps the one before it");
  EXPECT_EQ(WhyNot(two("[0,4]", "[6,10]"), 10),
            "header: bytes 4 to 6 of the data, before tensor \"b\", belong to no tensor");
  EXPECT_EQ(WhyNot(two("[2,6]", "[6,10]"), 10),
            "header: bytes 0 to 2 of the data, before tensor \"a\", belong to no tensor");
  EXPECT_EQ(WhyNot(two("[0,4]", "[4,8]"), 9), "header: the tensors take 8 bytes and 9 follow the header");
  EXPECT_EQ(WhyNot(two("[0,4]", "[4,8]"), 7),
            "header: the tensors take 8 bytes and 7 follow the header; the file is truncated");
}

TEST(SafetensorsHeader, AnEmptyTensorMustNotStandInsideAnother) {
  EXPECT_EQ(WhyNot(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                       "b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                   4),
            "header: tensor \"b\" overlaps the one before it");
}

TEST(SafetensorsHeader, ShapesMustGiveTheBytesWithoutOverflow) {
  EXPECT_EQ(WhyNotWith("[2]", "[3]"), "header: tensor \"a\": shape [3] of F32 takes 12 bytes, data_offsets are [0, 8]");
  EXPECT_EQ(WhyNotWith("[0,8]", "[8,0]"),
            "header: tensor \"a\": shape [2] of F32 takes 8 bytes, data_offsets are [8, 0]");
  EXPECT_EQ(WhyNotWith("[2]", "[2,0]"),
            "header: tensor \"a\": shape [2, 0] of F32 takes 0 bytes, data_offsets are [0, 8]");
  EXPECT_EQ(WhyNotWith("[2]", "[4611686018427387904,2]"), "header: tensor \"a\": its shape is out of range");
  EXPECT_EQ(WhyNotWith("[2]", "[4294967296,4294967296,0]"), "header: tensor \"a\": its shape is out of range");
  EXPECT_EQ(WhyNotWith("[2]", "[9223372036854775808]"), "header: tensor \"a\": \"shape\": a dimension is out of range");
  EXPECT_THAT(WhyNotWith("[2]", "[18446744073709551616]"), HasSubstr("\"shape\": byte 29: a number past 64 bits"));
  std::string many = "[2";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_EQ(WhyNotWith("[2]", many + "]"), "header: tensor \"a\": \"shape\": more than 64 dimensions");
}

TEST(SafetensorsHeader, NumbersAreWholeAndNotNegative) {
  for (const char* number : {"2.0", "2e0", "+2", "-2", "02", "\"2\"", "null", "", "0x2", "[2]"}) {
    EXPECT_THAT(WhyNotWith("[2]", absl::StrCat("[1,", number, "]")), HasSubstr("tensor \"a\": \"shape\": byte"))
        << number;
  }
  EXPECT_THAT(WhyNotWith("[0,8]", "[0]"), HasSubstr("\"data_offsets\": expected two numbers, found 1"));
  EXPECT_THAT(WhyNotWith("[0,8]", "[0,8,8]"), HasSubstr("\"data_offsets\": expected two numbers, found more"));
}

TEST(SafetensorsHeader, DtypesThatAreNotSupportedAreNamed) {
  const auto f4 = Read(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1);
  EXPECT_EQ(f4.status(), absl::UnimplementedError("header: tensor \"a\": \"dtype\": dtype \"F4\" is not supported"));
  EXPECT_EQ(WhyNotWith("F32", "f32"), "header: tensor \"a\": \"dtype\": dtype \"f32\" is not supported");
}

TEST(SafetensorsHeader, NothingStandsTwice) {
  EXPECT_EQ(WhyNot(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},
                       "\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
            "header: two tensors named \"a\"");
  EXPECT_EQ(WhyNot(R"({"__metadata__":{},"__metadata__":{}})"), "header: __metadata__: stands twice");
  EXPECT_EQ(WhyNot(R"({"__metadata__":{"k":"1","k":"1"}})"), "header: __metadata__: two entries named \"k\"");
  EXPECT_EQ(WhyNotWith(R"("shape":[2])", R"("shape":[2],"shape":[2])"),
            "header: tensor \"a\": two fields named \"shape\"");
}

TEST(SafetensorsHeader, FieldsAreThoseOfTheFormat) {
  EXPECT_EQ(WhyNotWith(R"("shape":[2],)", ""),
            "header: tensor \"a\": expected dtype, shape and data_offsets, found dtype, data_offsets");
  EXPECT_EQ(WhyNotWith("\"shape\"", R"("device":"cpu","shape")"),
            "header: tensor \"a\": \"device\": no field of the format");
  EXPECT_EQ(WhyNot(R"({"__metadata__":{"a":1}})"), "header: __metadata__: byte 21: expected '\"', found '1'");
  EXPECT_EQ(WhyNot(R"({"__metadata__":null})"), "header: __metadata__: byte 16: expected '{', found 'n'");
}

TEST(SafetensorsHeader, JsonIsCheckedToTheByte) {
  EXPECT_EQ(WhyNot("{"), "header: byte 1: expected '\"', found the end");
  EXPECT_EQ(WhyNot("{}}"), "header: byte 2: more than one JSON value");
  EXPECT_EQ(WhyNot(std::string("{}\0", 3)), "header: byte 2: more than one JSON value");
  EXPECT_EQ(WhyNot("{,}"), "header: byte 1: expected '\"', found ','");
  EXPECT_EQ(WhyNot(R"({"__metadata__":{"a":"b",}})"), "header: __metadata__: byte 25: expected '\"', found '}'");
  EXPECT_EQ(WhyNot(R"({"a)"), "header: byte 2: a string without end");
  EXPECT_EQ(WhyNot(R"({"a\)"), "header: byte 2: a string without end");
  EXPECT_EQ(WhyNot("{\"\n\":"), "header: byte 2: a control character in a string");
  EXPECT_EQ(WhyNot("{\"\xff\":"), "header: byte 2: a string that is not UTF-8");
  EXPECT_EQ(WhyNot("{\"\xed\xa0\x80\":"), "header: byte 2: a string that is not UTF-8");
  for (const char* bad :
       {"\\x", "\\u12", "\\u12g4", "\\ud800", "\\udc00", "\\ud800x", "\\ud800\\n", "\\ud800\\u0041"}) {
    EXPECT_EQ(WhyNot(absl::StrCat("{\"", bad, "\":")), "header: byte 2: a string with an escape that is none") << bad;
  }
}

TEST(SafetensorsHeader, MemoryIsBounded) {
  std::string json = "{";
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  }
  const std::string file = WithLength(json.size() + 1, json + "}");
  EXPECT_TRUE(ReadBytes(file, 1 << 20).ok());
  const absl::Status status = ReadBytes(file, 1 << 18).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it takes more memory than LoadOptions::memory_limit"));
  const std::string text = R"({"__metadata__":{"a":")" + std::string(1 << 20, 'x') + "\"}}";
  EXPECT_EQ(Read(text).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SafetensorsHeader, ALongNameIsCutInErrors) {
  const std::string name(1000, 'x');
  EXPECT_EQ(WhyNotWith("\"a\":{", absl::StrCat("\"", name, "\":1{")),
            absl::StrCat("header: tensor \"", name.substr(0, 60), "...\": byte 1004: expected '{', found '1'"));
}

TEST(SafetensorsHeader, WhatIsTooLongForTheFormatIsNotWritten) {
  SafetensorsHeader header;
  header.metadata.emplace_back("notes", "").second.resize(100'000'000, 'x');
  EXPECT_EQ(
      SafetensorsHeaderBytes(header).status(),
      absl::InvalidArgumentError("names, shapes and metadata take 100000032 bytes; a safetensors file has room for "
                                 "100000000"));
}

}  // namespace
}  // namespace lockstep::checkpoint::safetensors
