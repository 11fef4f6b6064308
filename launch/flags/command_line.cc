#include "lockstep/launch/flags/command_line.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/flags/flag_table.h"
#include "lockstep/launch/flags/python_program.h"
#include "lockstep/launch/flags/rendezvous_flags.h"
#include "lockstep/launch/flags/scheduler.h"

namespace lockstep::launch {
namespace {

constexpr char kVariablePrefix[] = "PET_";
constexpr char kPrefixVariable[] = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

using Environment = std::map<std::string, std::string>;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status Refused(absl::string_view source, absl::string_view instead) {
  return Bad(source, " is not supported: ", instead);
}

// For a name that is one, but not here, there is none.
std::optional<std::string> OtherName(const std::string& name) {
  std::optional<std::string> nearest = NearestName(name, FlagNames());
  if (nearest && *nearest == name) nearest.reset();
  return nearest;
}

std::string DidYouMean(const std::optional<std::string>& name, absl::string_view prefix) {
  return name ? absl::StrCat("; did you mean ", prefix, *name, "?") : ";";
}

// The variables of torchrun that are set. Flags override them.
absl::StatusOr<GivenFlags> ReadVariables(const Environment& environment) {
  GivenFlags values;
  for (const auto& [variable, value] : environment) {
    absl::string_view rest = variable;
    if (value.empty() || !absl::ConsumePrefix(&rest, kVariablePrefix)) continue;
    const std::string name = absl::AsciiStrToLower(rest);
    const Flag* flag = FindFlag(name);
    if (!flag || flag->kind == Flag::kQuestion) {
      std::optional<std::string> nearest = OtherName(name);
      if (nearest) nearest = absl::AsciiStrToUpper(*nearest);
      return Bad("unknown environment variable ", Printable(variable), DidYouMean(nearest, kVariablePrefix),
                 " unset it");
    }
    if (flag->kind == Flag::kUnsupported) {
      return Refused(absl::StrCat("environment variable ", variable), flag->help);
    }
    if (flag->kind == Flag::kValue || value != "0") values[flag->name] = {variable, value};
  }
  return values;
}

absl::Status UnknownFlag(absl::string_view given, const std::string& name) {
  return Bad("unknown flag ", Printable(given), DidYouMean(OtherName(name), "--"), " --help lists the flags");
}

// An argument as it begins: "--nproc-per-node=2", "-t3".
struct Argument {
  std::string source;  // "--nproc-per-node", "-t"
  const Flag* flag = nullptr;
  std::optional<std::string> value;
};

// "-t", "-t3" and "-t=3". "-tee" and the like are long names.
bool ReadShort(const std::string& arg, Argument* argument) {
  if (absl::StartsWith(arg, "--")) return false;
  const Flag* flag = FindShortFlag(arg[1]);
  const bool has_value = arg.size() > 2 && (arg[2] == '=' || absl::ascii_isdigit(arg[2]));
  if (!flag || (arg.size() > 2 && !has_value)) return false;
  argument->source = arg.substr(0, 2);
  argument->flag = flag;
  if (has_value) argument->value = arg.substr(arg[2] == '=' ? 3 : 2);
  return true;
}

absl::StatusOr<Argument> ReadArgument(const std::string& arg) {
  Argument argument;
  if (ReadShort(arg, &argument)) return argument;
  const size_t equals = arg.find('=');
  argument.source = arg.substr(0, equals);
  if (equals != std::string::npos) argument.value = arg.substr(equals + 1);
  std::string name(absl::StripPrefix(absl::StripPrefix(argument.source, "-"), "-"));
  std::replace(name.begin(), name.end(), '-', '_');
  argument.flag = FindFlag(name);
  if (!argument.flag) return UnknownFlag(argument.source, name);
  return argument;
}

// Takes the flag at args[*i], and its value, which may be the next argument.
absl::Status TakeFlag(const std::vector<std::string>& args, size_t* i, GivenFlags* values) {
  LOCKSTEP_ASSIGN_OR_RETURN(Argument argument, ReadArgument(args[*i]));
  const Flag& flag = *argument.flag;
  if (flag.kind == Flag::kUnsupported) return Refused(Printable(argument.source), flag.help);
  if (flag.kind == Flag::kSwitch || flag.kind == Flag::kQuestion) {
    if (argument.value) return Bad(argument.source, " takes no value");
    argument.value = "";
  } else if (!argument.value) {
    if (*i + 1 == args.size() || absl::StartsWith(args[*i + 1], "--")) {
      return Bad(argument.source, " needs a value");
    }
    argument.value = args[++*i];
  }
  (*values)[flag.name] = {std::move(argument.source), *std::move(argument.value)};
  return absl::OkStatus();
}

absl::Status CheckTogether(const GivenFlags& values, const LaunchOptions& options, const RendezvousOptions& nodes) {
  const GivenFlag *standalone = Find(values, "standalone"), *module = Find(values, "module");
  const GivenFlag *no_python = Find(values, "no_python"), *window = Find(values, "restart_window");
  const GivenFlag *use_env = Find(values, "use_env"), *no_use_env = Find(values, "no_use_env");
  if (standalone && nodes.max_nodes > 1) {
    return Bad(standalone->source, " is for one node, but nnodes is ", nodes.max_nodes);
  }
  if (module && no_python) return Bad(module->source, " needs Python, but ", no_python->source, " is given too");
  if (use_env && no_use_env) return Bad(use_env->source, " and ", no_use_env->source, " contradict each other");
  if (options.spares > 0 && nodes.max_nodes > 1 && nodes.backend == RendezvousOptions::Backend::kStatic) {
    return Bad(values.at("spares").source, " with nnodes ", nodes.max_nodes,
               " needs --rdzv_backend=tcp or etcd-v3: by itself no node tells the others that a rank has failed");
  }
  if (window && options.max_restarts == 0) return Bad(window->source, " needs --max_restarts, which is 0");
  return absl::OkStatus();
}

// Sets what the rows of the table set, in their order.
absl::Status SetAll(const GivenFlags& values, Settings* settings) {
  for (const FlagGroup& group : FlagGroups()) {
    for (const Flag& flag : group.flags) {
      const GivenFlag* given = Find(values, flag.name);
      if (given && flag.set) LOCKSTEP_RETURN_IF_ERROR(flag.set(*given, settings));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args, const Environment& environment) {
  CommandLine line;
  GivenFlags given;
  size_t i = 0;
  for (; i < args.size() && args[i].size() > 1 && args[i][0] == '-'; ++i) {
    if (args[i] == "--") {
      ++i;
      break;
    }
    LOCKSTEP_RETURN_IF_ERROR(TakeFlag(args, &i, &given));
    line.help = given.count("help") != 0;
    line.version = given.count("version") != 0;
    if (line.help || line.version) return line;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(GivenFlags values, ReadVariables(environment));
  for (auto& [name, value] : given) values[name] = std::move(value);
  Settings settings;
  settings.own_environment = environment;
  LOCKSTEP_RETURN_IF_ERROR(SetAll(values, &settings));
  LOCKSTEP_RETURN_IF_ERROR(ResolveRendezvous(values, &settings, &line.notices));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string filled, FillFromScheduler(values, &settings));
  if (!filled.empty()) line.notices.push_back(std::move(filled));
  line.options = std::move(settings.options);
  line.rendezvous = std::move(settings.rendezvous);
  LOCKSTEP_RETURN_IF_ERROR(CheckTogether(values, line.options, line.rendezvous));
  if (i == args.size()) return Bad("no program to launch; --help shows how");
  const auto python = environment.find("PYTHON_EXEC");
  line.program = CommandOf({args.begin() + static_cast<std::ptrdiff_t>(i), args.end()}, values,
                           python == environment.end() ? "" : python->second);
  if (values.count("no_use_env") != 0) {
    line.options.local_rank_argument = static_cast<int>(line.program.size() - (args.size() - i - 1));
  }
  const auto prefix = environment.find(kPrefixVariable);
  if (prefix != environment.end() && !prefix->second.empty()) line.options.log_line_prefix_template = prefix->second;
  return line;
}

}  // namespace lockstep::launch
