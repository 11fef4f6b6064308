"""The rules and providers of the modules rules_cc and rules_shell, for evaluate.py: with their attributes, and without doing anything."""

_FILES = attr.label_list()
_LABEL = attr.label()
_TEXT = attr.string()

_CC = {
    "additional_compiler_inputs": _FILES,
    "additional_linker_inputs": _FILES,
    "conlyopts": _TEXT,
    "copts": _TEXT,
    "cxxopts": _TEXT,
    "data": _FILES,
    "defines": _TEXT,
    "deps": _FILES,
    "includes": _TEXT,
    "linkopts": _TEXT,
    "linkstatic": _TEXT,
    "local_defines": _TEXT,
    "srcs": _FILES,
}

_LIBRARY = dict(
    _CC,
    alwayslink = _TEXT,
    hdrs = _FILES,
    implementation_deps = _FILES,
    include_prefix = _TEXT,
    linkstamp = _LABEL,
    strip_include_prefix = _TEXT,
    textual_hdrs = _FILES,
)

_BINARY = dict(_CC, dynamic_deps = _FILES, linkshared = _TEXT, malloc = _LABEL, stamp = _TEXT)

cc_binary = rule(implementation = None, attrs = _BINARY, executable = True)
cc_import = rule(
    implementation = None,
    attrs = {
        "alwayslink": _TEXT,
        "data": _FILES,
        "deps": _FILES,
        "hdrs": _FILES,
        "interface_library": _LABEL,
        "shared_library": _LABEL,
        "static_library": _LABEL,
        "system_provided": _TEXT,
    },
)
cc_library = rule(implementation = None, attrs = _LIBRARY)
cc_test = rule(implementation = None, attrs = _BINARY, test = True)

CcInfo = provider()
cc_common = struct()
find_cc_toolchain = None
find_cpp_toolchain = None
use_cc_toolchain = None

_SH = {"data": _FILES, "deps": _FILES, "srcs": _FILES}

sh_binary = rule(implementation = None, attrs = _SH, executable = True)
sh_library = rule(implementation = None, attrs = _SH)
sh_test = rule(implementation = None, attrs = _SH, test = True)
