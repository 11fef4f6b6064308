#include "lockstep/launch/flags/endpoint_flag.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

std::string Refusal(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return absl::StrCat("expected ", status.message());
}

// "host port", or what is expected instead.
std::string Read(const char* text, int default_port = 29400) {
  const absl::StatusOr<HostAndPort> endpoint = ReadEndpoint(text, default_port);
  return endpoint.ok() ? absl::StrCat(endpoint->host, " ", endpoint->port) : Refusal(endpoint.status());
}

void ExpectRefused(const std::vector<const char*>& texts, const std::string& refusal) {
  for (const char* text : texts) EXPECT_EQ(Read(text), refusal) << text;
}

TEST(ReadEndpoint, TakesNamesAndAddressesWithAndWithoutAPort) {
  EXPECT_EQ(Read("node1"), "node1 29400");
  EXPECT_EQ(Read("node1:0"), "node1 0");
  EXPECT_EQ(Read("node1:65535"), "node1 65535");
  EXPECT_EQ(Read("10.0.0.1:7"), "10.0.0.1 7");
  EXPECT_EQ(Read("127.1"), "127.1 29400");
  EXPECT_EQ(Read(":0"), "localhost 0");
  EXPECT_EQ(Read("node1:7", -1), "node1 7");
}

TEST(ReadEndpoint, TakesIpv6AddressesWithAndWithoutBrackets) {
  EXPECT_EQ(Read("::1"), "::1 29400");
  EXPECT_EQ(Read("::"), ":: 29400");
  EXPECT_EQ(Read("2001:db8::17"), "2001:db8::17 29400");
  EXPECT_EQ(Read("1:2:3:4:5:6:7:8"), "1:2:3:4:5:6:7:8 29400");
  EXPECT_EQ(Read("::ffff:10.0.0.1"), "::ffff:10.0.0.1 29400");
  EXPECT_EQ(Read("[::1]"), "::1 29400");
  EXPECT_EQ(Read("[::1]:7"), "::1 7");
  EXPECT_EQ(Read("[::1]:7", -1), "::1 7");
}

// torchrun's spelling. The last group of an address has four digits at most.
TEST(ReadEndpoint, TakesAPortBehindABareIpv6AddressIfItCanOnlyBeAPort) {
  EXPECT_EQ(Read("::1:29400"), "::1 29400");
  EXPECT_EQ(Read("1:2:3:4:5:6:7:8:29400"), "1:2:3:4:5:6:7:8 29400");
  EXPECT_EQ(Read("::ffff:10.0.0.1:7"), "::ffff:10.0.0.1 7");
  EXPECT_EQ(Read("fd00::5:7", -1), "fd00::5 7");
}

TEST(ReadEndpoint, NamesBothSpellingsOfABareIpv6AddressWhoseEndMayBeAPort) {
  EXPECT_EQ(Read("fd00::5:2379"), "expected [fd00::5:2379]:29400, or [fd00::5]:2379 if 2379 is the port");
  EXPECT_EQ(Read("::1:7", 2379), "expected [::1:7]:2379, or [::1]:7 if 7 is the port");
}

TEST(ReadEndpoint, TakesTheInterfaceOfALinkLocalAddress) {
  EXPECT_EQ(Read("fe80::1%lo"), "fe80::1%lo 29400");
  EXPECT_EQ(Read("fe80::1%1"), "fe80::1%1 29400");
  EXPECT_EQ(Read("fe80::1%lo:7"), "fe80::1%lo 7");
  EXPECT_EQ(Read("[fe80::1%lo]:7"), "fe80::1%lo 7");
  const std::string needed = "expected the interface of a link-local address too, as in [fe80::1%eth0]:29400";
  EXPECT_EQ(Read("fe80::1"), needed);
  EXPECT_EQ(Read("[fe80::1]:7"), needed);
  EXPECT_EQ(Read("fe80::1%none"), "expected an interface of this host after the %, but there is no none");
}

TEST(ReadEndpoint, SaysWhatIsExpectedInsteadOfAnythingElse) {
  ExpectRefused({"[::1", "[", "[]", "[]:7", "[node1]:7", "[10.0.0.1]", "[::1:29400", "[::1%]:7", "[[::1]]"},
                "expected an IPv6 address in brackets, as in [::1]:29400");
  ExpectRefused({"[::1]7", "[::1]x:7", "[::1]:", "[::1]:65536", "[::1]:7:8", "[::1]]:7"},
                "expected [address]:port, with a port of at most 65535");
  const std::string both = "expected host:port, and an IPv6 address in brackets, as in [::1]:29400";
  ExpectRefused({"node1:7:8", "::1]:29400", "::1:65536", "::1%:7", ":::", "a::b:7x", "10.0.0.1:7:8"}, both);
  EXPECT_EQ(Read("::1", -1), both);
  ExpectRefused({"", ":7", "node1:", "node1:port", "node1:-1", "node1:+7", "node1: 7", "a/b"},
                "expected host or host:port");
  EXPECT_EQ(Read("node1:65536"), "expected host or host:port, with a port of at most 65535");
  EXPECT_EQ(Read("10.0.0.256:7"), "expected host or host:port; 10.0.0.256 is not an address");
  EXPECT_EQ(Read("node1", -1), "expected host:port");
}

TEST(ReadHost, TakesAHostWithoutAPort) {
  const auto host = [](const char* text) {
    const absl::StatusOr<std::string> read = ReadHost(text);
    return read.ok() ? *read : Refusal(read.status());
  };
  EXPECT_EQ(host("node1"), "node1");
  EXPECT_EQ(host("::1"), "::1");
  EXPECT_EQ(host("::1:7"), "::1:7");
  EXPECT_EQ(host("[::1]"), "::1");
  EXPECT_EQ(host("[::1]:7"), "expected a host without a port");
  EXPECT_EQ(host("node1:7"), "expected a host without a port");
  EXPECT_EQ(host("[::1"), "expected a host without a port");
  EXPECT_EQ(host("[x]"), "expected an IPv6 address in brackets, as in [::1]:29400");
}

}  // namespace
}  // namespace lockstep::launch
