#include "lockstep/base/json_fields.h"

#include <stdint.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {

// The structs and their Fields() are as in a user's file: not in an unnamed namespace.
namespace json_fields_test {

enum class Colour { kRed, kBlue };
constexpr absl::string_view kColours[] = {"red", "blue"};

struct Seat {
  int number = 0;
  std::string owner;
  bool operator==(const Seat& other) const { return number == other.number && owner == other.owner; }
};

void Fields(JsonFields& json, Seat& seat) {
  json.Field("number", seat.number);
  json.Optional("owner", seat.owner);
}

struct Car {
  std::string name;
  bool parked = false;
  uint8_t doors = 4;
  int64_t distance = 0;
  double price = 0;
  absl::Duration age, precise;
  Colour colour = Colour::kRed, roof = Colour::kRed;
  std::optional<int> tow;
  std::vector<std::string> notes;
  std::vector<Seat> seats, rows;
  int64_t seen_ns = 0;
};

void Fields(JsonFields& json, Car& car) {
  json.Required("name", car.name);
  json.Field("parked", car.parked);
  json.Field("doors", car.doors);
  json.Field("distance", car.distance);
  json.Field("price", car.price);
  json.Field("age", car.age);
  json.Nanoseconds("precise", car.precise);
  json.Enum("colour", car.colour, kColours);
  json.Enum("roof", car.roof, Colour::kBlue);
  json.Field("tow", car.tow);
  json.Optional("notes", car.notes);
  json.Field("seats", car.seats);
  json.Rows("rows", car.rows);
  json.Age("seen", car.seen_ns);
  if (car.doors == 13) json.Fail("13 doors bring bad luck");
}

namespace {

using ::testing::HasSubstr;

Car Truck() {
  Car car;
  car.name = "truck \"x\"\n";
  car.parked = true;
  car.distance = std::numeric_limits<int64_t>::min();
  car.price = 1.0 / 3;
  car.age = absl::Milliseconds(1250);
  car.precise = absl::Nanoseconds(7);
  car.colour = car.roof = Colour::kBlue;
  car.tow = 0;
  car.notes = {"a", ""};
  car.seats = {{1, "ann"}, {2, ""}};
  car.rows = {{3, "bob"}, {4, ""}};
  car.seen_ns = 900;
  return car;
}

absl::Status Read(absl::string_view text) {
  Car car;
  return ReadJson(text, &car);
}

TEST(JsonFields, WritesTheFieldsInTheirOrder) {
  JsonOptions options;
  options.now_ns = 1000;
  EXPECT_EQ(WriteJson(Truck(), options),
            R"({"name":"truck \"x\"\n","parked":true,"doors":4,"distance":-9223372036854775808,"price":0.3333,)"
            R"("age":1.250,"precise":7,"colour":"blue","roof":1,"tow":0,"notes":["a",""],)"
            R"("seats":[{"number":1,"owner":"ann"},{"number":2}],"rows":[[3,"bob"],[4,""]],"seen":100})");
  options.printable = true;
  EXPECT_THAT(WriteJson(Truck(), options), HasSubstr(R"("name":"truck \"x\"\\n",)"));
}

TEST(JsonFields, LeavesOutWhatIsOptional) {
  EXPECT_EQ(WriteJson(Car()), R"({"name":"","parked":false,"doors":4,"distance":0,"price":0,"age":0.000,"precise":0,)"
                              R"("colour":"red","roof":0,"seats":[],"rows":[],"seen":0})");
}

TEST(JsonFields, ReadsWhatItHasWritten) {
  JsonOptions writer, reader;
  writer.now_ns = 1000;
  reader.now_ns = 5000;
  Car car;
  car.seats.resize(5);
  ASSERT_EQ(ReadJson(WriteJson(Truck(), writer), &car, reader), absl::OkStatus());
  EXPECT_EQ(car.name, "truck \"x\"\n");
  EXPECT_TRUE(car.parked);
  EXPECT_EQ(car.distance, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(car.price, 0.3333);
  EXPECT_EQ(car.age, absl::Milliseconds(1250));
  EXPECT_EQ(car.precise, absl::Nanoseconds(7));
  EXPECT_EQ(car.colour, Colour::kBlue);
  EXPECT_EQ(car.roof, Colour::kBlue);
  EXPECT_EQ(car.tow, 0);
  EXPECT_EQ(car.notes, Truck().notes);
  EXPECT_EQ(car.seats, Truck().seats);
  EXPECT_EQ(car.rows, Truck().rows);
  EXPECT_EQ(car.seen_ns, 4900) << "the age was 100";
}

TEST(JsonFields, BytesThatAreNotUtf8DoNotBreakTheText) {
  Car car;
  car.name = "a\xff";
  Car again;
  ASSERT_EQ(ReadJson(WriteJson(car), &again), absl::OkStatus());
  EXPECT_EQ(again.name, "a\xEF\xBF\xBD");
}

TEST(JsonFields, UnknownFieldsAreIgnoredAndMissingOnesKeepTheirValues) {
  Car car = Truck();
  ASSERT_EQ(ReadJson(R"( {"wheels":[{"name":3}],"name":"b","rows":[[7],[8,"eve",9]]})", &car), absl::OkStatus());
  EXPECT_EQ(car.name, "b");
  EXPECT_EQ(car.tow, 0);
  EXPECT_EQ(car.notes, Truck().notes);
  EXPECT_EQ(car.rows, (std::vector<Seat>{{7, ""}, {8, "eve"}}));
}

TEST(JsonFields, ErrorsNameTheField) {
  const auto message = [](absl::string_view text) { return std::string(Read(text).message()); };
  EXPECT_EQ(message("{}"), "field \"name\" is missing");
  EXPECT_EQ(message("[]"), "expected an object, found array");
  EXPECT_EQ(message(R"({"name":3})"), "field \"name\": expected a text, found 3");
  EXPECT_EQ(message(R"({"name":"","parked":1})"), "field \"parked\": expected true or false, found 1");
  EXPECT_EQ(message(R"({"name":"","age":"old"})"), "field \"age\": expected a number, found \"old\"");
  EXPECT_EQ(message(R"({"name":"","notes":{}})"), "field \"notes\": expected a list, found object");
  EXPECT_EQ(message(R"({"name":"","notes":["a",2]})"), "field \"notes\": expected a text, found 2");
  EXPECT_EQ(message(R"({"name":"","seats":[{"number":true}]})"),
            "field \"number\": expected a whole number from -2147483648 to 2147483647, found true");
  EXPECT_EQ(message(R"({"name":"","rows":[{}]})"), "field \"rows\": expected a list, found object");
  EXPECT_EQ(message(R"({"name":"","colour":"green"})"), "unknown colour green");
  EXPECT_EQ(message(R"({"name":"","roof":2})"), "unknown roof 2");
  EXPECT_EQ(message(R"({"name":"","doors":13})"), "13 doors bring bad luck");
  EXPECT_EQ(message(R"({"parked":1,"doors":13})"), "field \"name\" is missing") << "the first error counts";
}

TEST(JsonFields, NumbersThatDoNotFitAreErrors) {
  for (const char* doors : {"256", "-1", "2.5", "1e2", "18446744073709551616"}) {
    const absl::Status status = Read(std::string(R"({"name":"","doors":)") + doors + "}");
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << doors;
    EXPECT_THAT(status.message(), HasSubstr("field \"doors\": expected a whole number from 0 to 255, found")) << doors;
  }
  EXPECT_FALSE(Read(R"({"name":"","distance":9223372036854775808})").ok());
}

TEST(JsonFields, OtherTextsAreErrors) {
  for (const char* text : {"", "nonsense", "{", "{\"name\":\"\xff\"}", "{\"name\":\"\"} {}"}) {
    EXPECT_EQ(Read(text), absl::InvalidArgumentError("not JSON")) << text;
  }
}

}  // namespace
}  // namespace json_fields_test
}  // namespace lockstep
