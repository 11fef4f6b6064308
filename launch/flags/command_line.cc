#include "lockstep/tools/launch/internal/command_line.h"

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
#include "lockstep/tools/launch/internal/flag_names.h"
#include "lockstep/tools/launch/internal/flag_values.h"
#include "lockstep/tools/launch/internal/python_program.h"
#include "lockstep/tools/launch/internal/rendezvous_flags.h"
#include "lockstep/tools/launch/internal/scheduler.h"

namespace lockstep::launch::internal {
namespace {

constexpr char kVariablePrefix[] = "PET_";
constexpr char kPrefixVariable[] = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

using Values = std::map<std::string, GivenFlag>;  // by the flag's name
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
absl::StatusOr<Values> ReadVariables(const Environment& environment) {
  Values values;
  for (const auto& [variable, value] : environment) {
    absl::string_view rest = variable;
    if (value.empty() || !absl::ConsumePrefix(&rest, kVariablePrefix)) continue;
    const std::string name = absl::AsciiStrToLower(rest);
    const Flag* flag = FindFlag(name);
    if (!flag) {
      std::optional<std::string> nearest = OtherName(name);
      if (nearest) nearest = absl::AsciiStrToUpper(*nearest);
      return Bad("unknown environment variable ", Printable(variable), DidYouMean(nearest, kVariablePrefix),
                 " unset it");
    }
    if (flag->kind == Flag::kUnsupported) {
      return Refused(absl::StrCat("environment variable ", variable), flag->instead);
    }
    if (flag->kind == Flag::kValue || value != "0") values[flag->name] = {variable, value};
  }
  return values;
}

absl::Status UnknownFlag(absl::string_view given, const std::string& name) {
  if (name == "help") return Bad(given, " takes no value");
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
absl::Status TakeFlag(const std::vector<std::string>& args, size_t* i, Values* values) {
  LOCKSTEP_ASSIGN_OR_RETURN(Argument argument, ReadArgument(args[*i]));
  const Flag& flag = *argument.flag;
  if (flag.kind == Flag::kUnsupported) return Refused(Printable(argument.source), flag.instead);
  if (flag.kind == Flag::kSwitch) {
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

absl::Status CheckTogether(const Values& values, const LaunchOptions& options, const RendezvousOptions& nodes) {
  const auto standalone = values.find("standalone"), module = values.find("module");
  const auto no_python = values.find("no_python"), window = values.find("restart_window");
  if (standalone != values.end() && nodes.max_nodes > 1) {
    return Bad(standalone->second.source, " is for one node, but nnodes is ", nodes.max_nodes);
  }
  if (module != values.end() && no_python != values.end()) {
    return Bad(module->second.source, " needs Python, but ", no_python->second.source, " is given too");
  }
  const auto use_env = values.find("use_env"), no_use_env = values.find("no_use_env");
  if (use_env != values.end() && no_use_env != values.end()) {
    return Bad(use_env->second.source, " and ", no_use_env->second.source, " contradict each other");
  }
  if (options.spares > 0 && nodes.max_nodes > 1 && nodes.backend == RendezvousOptions::Backend::kStatic) {
    return Bad(values.at("spares").source, " with nnodes ", nodes.max_nodes,
               " needs --rdzv_backend=tcp or etcd-v3: by itself no node tells the others that a rank has failed");
  }
  if (window != values.end() && options.max_restarts == 0) {
    return Bad(window->second.source, " needs --max_restarts, which is 0");
  }
  return absl::OkStatus();
}

GivenNodes NodesGivenBy(const Values& values, const RendezvousOptions& nodes) {
  const auto has = [&](const char* name) { return values.count(name) != 0; };
  GivenNodes given;
  given.standalone = has("standalone");
  given.rendezvous = nodes.backend != RendezvousOptions::Backend::kStatic;
  given.nnodes = has("nnodes");
  given.node_rank = has("node_rank");
  given.master_addr = has("master_addr") || has("rdzv_endpoint");
  given.master_port = has("master_port") || has("rdzv_endpoint");
  return given;
}

PythonUse UseOfPython(const Values& values, const Environment& environment) {
  PythonUse use;
  use.module = values.count("module") != 0;
  use.script = values.count("run_path") != 0;
  use.never = values.count("no_python") != 0;
  const auto interpreter = environment.find("PYTHON_EXEC");
  if (interpreter != environment.end()) use.interpreter = interpreter->second;
  return use;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& args, const Environment& environment) {
  CommandLine line;
  Values given;
  size_t i = 0;
  for (; i < args.size() && args[i].size() > 1 && args[i][0] == '-'; ++i) {
    if (args[i] == "--") {
      ++i;
      break;
    }
    line.help = args[i] == "--help" || args[i] == "-help" || args[i] == "-h";
    if (line.help) return line;
    LOCKSTEP_RETURN_IF_ERROR(TakeFlag(args, &i, &given));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Values values, ReadVariables(environment));
  for (auto& [name, value] : given) values[name] = std::move(value);
  for (const std::string& name : ValueFlags()) {
    const auto found = values.find(name);
    if (found != values.end()) {
      LOCKSTEP_RETURN_IF_ERROR(SetOption(name, found->second, environment, &line.options));
    }
  }
  line.options.virtual_local_rank = values.count("virtual_local_rank") != 0;
  LOCKSTEP_ASSIGN_OR_RETURN(line.rendezvous, ReadRendezvous(values, &line.options, &line.notices));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string filled,
                            FillFromScheduler(environment, NodesGivenBy(values, line.rendezvous), &line.options));
  if (!filled.empty()) line.notices.push_back(std::move(filled));
  LOCKSTEP_RETURN_IF_ERROR(CheckTogether(values, line.options, line.rendezvous));
  if (i == args.size()) return Bad("no program to launch; --help shows how");
  line.program =
      CommandOf({args.begin() + static_cast<std::ptrdiff_t>(i), args.end()}, UseOfPython(values, environment));
  if (values.count("no_use_env") != 0) {
    line.options.local_rank_argument = static_cast<int>(line.program.size() - (args.size() - i - 1));
  }
  const auto prefix = environment.find(kPrefixVariable);
  if (prefix != environment.end() && !prefix->second.empty()) line.options.log_line_prefix_template = prefix->second;
  return line;
}

}  // namespace lockstep::launch::internal
