#include "lockstep/launch/rendezvous/etcd/etcd_client.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep::launch::etcd {
namespace {

using Json = nlohmann::json;

// The fields of the gateway's JSON: bytes are in base64, and numbers are texts. A field with the default value is left
// out.

std::string Base64(absl::string_view bytes) { return absl::Base64Escape(bytes); }

const Json& Field(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

int64_t Number(const Json& object, const char* name) {
  const Json& field = Field(object, name);
  if (field.is_number_integer()) return field.get<int64_t>();
  int64_t number;
  // A field that is left out, or is no number, is 0 in protobuf's JSON.
  return field.is_string() && absl::SimpleAtoi(field.get_ref<const std::string&>(), &number) ? number : 0;
}

std::string Text(const Json& object, const char* name) {
  const Json& field = Field(object, name);
  return field.is_string() ? field.get<std::string>() : "";
}

std::string Bytes(const Json& object, const char* name) {
  std::string bytes;
  return absl::Base64Unescape(Text(object, name), &bytes) ? bytes : "";
}

bool IsTrue(const Json& object, const char* name) { return Field(object, name) == Json(true); }

int64_t Revision(const Json& reply) { return Number(Field(reply, "header"), "revision"); }

KeyValue ParseKeyValue(const Json& json) {
  KeyValue kv;
  kv.key = Bytes(json, "key");
  kv.value = Bytes(json, "value");
  kv.create_revision = Number(json, "create_revision");
  kv.mod_revision = Number(json, "mod_revision");
  kv.lease = Number(json, "lease");
  return kv;
}

void AppendKeyValues(const Json& range, std::vector<KeyValue>* kvs) {
  for (const Json& kv : Field(range, "kvs")) kvs->push_back(ParseKeyValue(kv));
}

Json ToJson(const Compare& compare) {
  const bool is_create = compare.target == Compare::Target::kCreateRevision;
  return {{"key", Base64(compare.key)},
          {"range_end", Base64(compare.range_end)},
          {"result", "EQUAL"},
          {"target", is_create ? "CREATE" : "MOD"},
          {is_create ? "create_revision" : "mod_revision", absl::StrCat(compare.revision)}};
}

Json RangeToJson(absl::string_view key, absl::string_view range_end) {
  return {{"key", Base64(key)}, {"range_end", Base64(range_end)}};
}

Json ToJson(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kPut:
      return {{"request_put",
               {{"key", Base64(operation.key)},
                {"value", Base64(operation.value)},
                {"lease", absl::StrCat(operation.lease)}}}};
    case Operation::Kind::kDelete:
      return {{"request_delete_range", RangeToJson(operation.key, "")}};
    case Operation::Kind::kRange:
      return {{"request_range", RangeToJson(operation.key, "")}};
  }
  return {};
}

template <typename Part>
Json ToJsonArray(const std::vector<Part>& parts) {
  Json array = Json::array();
  for (const Part& part : parts) array.push_back(ToJson(part));
  return array;
}

// The status that etcd answers with: {"error": "etcdserver: ...", "code": 5}. The codes are those of gRPC, as absl's.
absl::Status ErrorOf(const Json& error, absl::string_view endpoint) {
  const std::string message = error.contains("message") ? Text(error, "message") : Text(error, "error");
  int64_t code = Number(error, error.contains("grpc_code") ? "grpc_code" : "code");
  if (code <= 0) code = static_cast<int64_t>(absl::StatusCode::kUnavailable);
  if (absl::StrContains(message, "authentication failed")) {
    code = static_cast<int64_t>(absl::StatusCode::kPermissionDenied);
  }
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat("etcd ", endpoint, ": ", message.empty() ? "an error without text" : message));
}

absl::StatusOr<std::string> BodyOf(absl::StatusOr<HttpReply> reply, absl::string_view endpoint) {
  if (!reply.ok()) return Annotate(reply.status(), absl::StrCat("etcd ", endpoint));
  if (reply->code == 200) return std::move(reply->body);
  const Json json = Json::parse(reply->body, nullptr, false);
  if (json.is_object() && json.contains("error")) return ErrorOf(json, endpoint);
  return absl::UnavailableError(absl::StrCat("etcd ", endpoint, ": HTTP ", reply->code,
                                             ", expected an answer of etcd's JSON gateway; the text begins \"",
                                             Printable(absl::string_view(reply->body).substr(0, 80)), "\""));
}

absl::StatusOr<Json> ParseObject(const absl::StatusOr<std::string>& body) {
  if (!body.ok()) return body.status();
  Json json = Json::parse(*body, nullptr, false);
  if (!json.is_object()) {
    return absl::UnavailableError(absl::StrCat("expected a JSON object from etcd, found \"",
                                               Printable(absl::string_view(*body).substr(0, 80)), "\""));
  }
  return json;
}

// A callback for the body that gives `parse(json)` to `on_reply`.
template <typename Reply, typename Parse>
std::function<void(absl::StatusOr<std::string>)> Parsed(EtcdClient::On<Reply> on_reply, Parse parse) {
  return [on_reply = std::move(on_reply), parse](const absl::StatusOr<std::string>& body) {
    const absl::StatusOr<Json> json = ParseObject(body);
    if (!json.ok()) return on_reply(json.status());
    on_reply(parse(*json));
  };
}

RangeReply ParseRange(const Json& json) {
  RangeReply reply;
  reply.revision = Revision(json);
  AppendKeyValues(json, &reply.kvs);
  return reply;
}

TransactionReply ParseTransaction(const Json& json) {
  TransactionReply reply;
  reply.succeeded = IsTrue(json, "succeeded");
  reply.revision = Revision(json);
  for (const Json& response : Field(json, "responses")) AppendKeyValues(Field(response, "response_range"), &reply.kvs);
  return reply;
}

absl::StatusOr<WatchReply> ParseWatch(absl::string_view line, absl::string_view endpoint) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, false);
  const absl::string_view shown = line.substr(0, 80);
  if (!json.is_object()) {
    return absl::UnavailableError(absl::StrCat("etcd ", endpoint, ": a watch got \"", Printable(shown), "\""));
  }
  // An error before the stream begins has the form of other replies.
  const Json& error = Field(json, "error");
  if (!error.is_null()) return ErrorOf(error.is_object() ? error : json, endpoint);
  const Json& result = Field(json, "result");
  if (const int64_t compacted = Number(result, "compact_revision"); compacted > 0) {
    return absl::OutOfRangeError(
        absl::StrCat("etcd ", endpoint, ": a watch starts before revision ", compacted, ", which is the oldest kept"));
  }
  if (IsTrue(result, "canceled")) {
    return absl::UnavailableError(
        absl::StrCat("etcd ", endpoint, ": the watch was cancelled: ", Text(result, "cancel_reason")));
  }
  WatchReply reply;
  reply.revision = Revision(result);
  for (const Json& event : Field(result, "events")) {
    reply.events.push_back({Text(event, "type") == "DELETE", ParseKeyValue(Field(event, "kv"))});
  }
  return reply;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(const EtcdClientOptions& options) {
  if (options.endpoints.empty()) return absl::InvalidArgumentError("etcd: no endpoint is given");
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<HttpClient> http, HttpClient::Create(options));
  return std::unique_ptr<EtcdClient>(new EtcdClient(options, std::move(http)));
}

EtcdClient::EtcdClient(const EtcdClientOptions& options, std::unique_ptr<HttpClient> http)
    : options_(options), http_(std::move(http)), needs_token_(!options_.user.empty()) {}

void EtcdClient::Range(absl::string_view key, absl::string_view range_end, On<RangeReply> on_reply) {
  Send("kv/range", RangeToJson(key, range_end).dump(), options_.request_timeout,
       Parsed(std::move(on_reply), ParseRange));
}

void EtcdClient::Execute(const Transaction& transaction, On<TransactionReply> on_reply) {
  const Json json = {{"compare", ToJsonArray(transaction.compares)},
                     {"success", ToJsonArray(transaction.success)},
                     {"failure", ToJsonArray(transaction.failure)}};
  Send("kv/txn", json.dump(), options_.request_timeout, Parsed(std::move(on_reply), ParseTransaction));
}

void EtcdClient::GrantLease(int64_t seconds, On<int64_t> on_reply) {
  const Json json = {{"TTL", absl::StrCat(seconds)}};
  Send("lease/grant", json.dump(), options_.request_timeout,
       Parsed(std::move(on_reply), [](const Json& reply) { return Number(reply, "ID"); }));
}

void EtcdClient::KeepLeaseAlive(int64_t lease, On<int64_t> on_reply) {
  const Json json = {{"ID", absl::StrCat(lease)}};
  const auto parse = [endpoint = endpoint()](const Json& reply) -> absl::StatusOr<int64_t> {
    if (reply.contains("error")) return ErrorOf(Field(reply, "error"), endpoint);
    return Number(Field(reply, "result"), "TTL");
  };
  Send("lease/keepalive", json.dump(), options_.keep_alive_timeout, Parsed(std::move(on_reply), parse));
}

void EtcdClient::RevokeLease(int64_t lease, On<int64_t> on_reply) {
  const Json json = {{"ID", absl::StrCat(lease)}};
  Send("lease/revoke", json.dump(), options_.request_timeout, Parsed(std::move(on_reply), Revision));
}

void EtcdClient::Watch(absl::string_view key, absl::string_view range_end, int64_t start_revision,
                       const On<WatchReply>& on_reply) {
  Json create = RangeToJson(key, range_end);
  create["start_revision"] = absl::StrCat(start_revision);
  const Json json = {{"create_request", std::move(create)}};
  Call call;
  call.path = "watch";
  call.body = json.dump();
  call.on_line = [on_reply, endpoint = endpoint()](absl::string_view line) { on_reply(ParseWatch(line, endpoint)); };
  call.on_body = [on_reply](const absl::StatusOr<std::string>& rest) {
    on_reply(rest.ok() ? absl::UnavailableError("etcd ended the watch") : rest.status());
  };
  Submit(std::move(call));
}

void EtcdClient::CancelAll() {
  ++cancellations_;
  http_->CancelAll();
  waiting_.clear();
  authenticating_ = false;
}

void EtcdClient::Send(std::string path, std::string body, absl::Duration timeout, OnBody on_body) {
  Call call;
  call.path = std::move(path);
  call.body = std::move(body);
  call.timeout = timeout;
  call.on_body = std::move(on_body);
  Submit(std::move(call));
}

void EtcdClient::Submit(Call call) {
  if (!needs_token_ || !token_.empty()) return Start(std::move(call));
  waiting_.push_back(std::move(call));
  if (!authenticating_) Authenticate();
}

void EtcdClient::Start(Call call) {
  const std::string endpoint = this->endpoint();
  HttpRequest request;
  request.url = absl::StrCat(endpoint, "/v3/", call.path);
  request.body = call.body;
  request.headers = {"Content-Type: application/json"};
  if (!token_.empty()) request.headers.push_back(absl::StrCat("Authorization: ", token_));
  // A member that cannot reach the others ends the watch, which would otherwise be silent.
  if (call.on_line) request.headers.push_back("Grpc-Metadata-hasleader: true");
  request.timeout = call.timeout;
  const HttpClient::OnLine on_line = call.on_line;
  http_->Post(
      std::move(request),
      [this, call = std::move(call), endpoint](absl::StatusOr<HttpReply> reply) {
        OnReply(call, endpoint, std::move(reply));
      },
      on_line);
}

void EtcdClient::OnReply(Call call, const std::string& endpoint, absl::StatusOr<HttpReply> reply) {
  absl::StatusOr<std::string> body = BodyOf(std::move(reply), endpoint);
  if (!body.ok() && TokenIsStale(body.status()) && !call.retried) {
    call.retried = true;
    return Submit(std::move(call));
  }
  call.on_body(std::move(body));
}

// Returns whether a new token helps. Forgets the token then.
bool EtcdClient::TokenIsStale(const absl::Status& status) {
  const bool stale =
      needs_token_ && (absl::IsUnauthenticated(status) || absl::StrContains(status.message(), "invalid auth token") ||
                       absl::StrContains(status.message(), "revision of auth store is old"));
  if (stale) token_.clear();
  return stale;
}

void EtcdClient::Authenticate() {
  authenticating_ = true;
  const std::string endpoint = this->endpoint();
  const Json json = {{"name", options_.user}, {"password", options_.password}};
  HttpRequest request;
  request.url = absl::StrCat(endpoint, "/v3/auth/authenticate");
  request.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  request.headers = {"Content-Type: application/json"};
  request.timeout = options_.request_timeout;
  http_->Post(std::move(request),
              [this, endpoint](absl::StatusOr<HttpReply> reply) { OnToken(std::move(reply), endpoint); });
}

void EtcdClient::OnToken(absl::StatusOr<HttpReply> reply, const std::string& endpoint) {
  authenticating_ = false;
  std::vector<Call> calls = std::exchange(waiting_, {});
  const absl::StatusOr<Json> json = ParseObject(BodyOf(std::move(reply), endpoint));
  absl::Status status = json.status();
  if (json.ok()) token_ = Text(*json, "token");
  if (json.ok() && token_.empty()) status = absl::UnavailableError(absl::StrCat("etcd ", endpoint, ": an empty token"));
  // A cluster that asks nobody for a password answers requests without a token.
  if (absl::StrContains(status.message(), "authentication is not enabled")) {
    needs_token_ = false;
    status = absl::OkStatus();
  }
  if (status.code() == absl::StatusCode::kPermissionDenied) {
    status = Annotate(status, absl::StrCat("user \"", Printable(options_.user), "\""));
  }
  const int64_t cancellations = cancellations_;
  for (Call& call : calls) {
    if (cancellations != cancellations_) return;  // by a callback
    if (status.ok()) {
      Start(std::move(call));
    } else {
      call.on_body(status);
    }
  }
}

}  // namespace lockstep::launch::etcd
