"""What Bazel 9 has built in, for evaluate.py, which defines the functions that begin with `_python`. Rules and providers that Bazel 9
no longer has are missing here, so that a file that uses one cannot be evaluated."""

_COMMON = [
    "aspect_hints",
    "compatible_with",
    "deprecation",
    "exec_compatible_with",
    "exec_group_compatible_with",
    "exec_properties",
    "features",
    "package_metadata",
    "restricted_to",
    "tags",
    "target_compatible_with",
    "testonly",
    "toolchains",
    "visibility",
]
_OF_TESTS = ["args", "env", "env_inherit", "flaky", "local", "shard_count", "size", "timeout"]


# Labels, depsets and selects.
def Label(label):
    return label if type(label) == "struct" else struct(**_python_resolve(label))


def str(value):
    if type(value) == "struct" and hasattr(value, "workspace_root"):
        return "@@%s//%s:%s" % (value.repo_name, value.package, value.name)
    return "%s" % (value,)


def select(values, no_match_error = ""):
    # All branches at once: what any of them names must exist.
    _python_references(call_stack(), values.keys())
    all_values = []
    for value in values.values():
        all_values += value if type(value) == "list" else [value]
    return all_values


def depset(direct = None, order = "default", *, transitive = None):
    return struct(to_list = lambda: direct or [])


def provider(doc = "", *, fields = None, init = None):
    make = lambda **values: struct(**values)
    return (make, make) if init else make


DefaultInfo = provider()
InstrumentedFilesInfo = provider()
OutputGroupInfo = provider()
RunEnvironmentInfo = provider()


# Attributes. `labels` tells whether the values are labels.
def _attribute(labels, empty, default, mandatory, cfg = None):
    if type(cfg) == "string" and cfg not in ("exec", "target"):
        fail('there is no cfg = "%s"' % cfg)
    default = empty if default == None else default
    if labels and type(default) == "string":
        default = Label(default)
    elif labels and type(default) == "list":
        default = [Label(label) for label in default]
    return struct(labels = labels, default = default, mandatory = mandatory)


def _plain(empty):
    def attribute(*, default = None, doc = "", mandatory = False, values = [], allow_empty = True):
        return _attribute(False, empty, default, mandatory)

    return attribute


def _labels(empty):
    def attribute(
        *,
        default = None,
        doc = "",
        mandatory = False,
        allow_empty = True,
        allow_files = None,
        allow_rules = None,
        allow_single_file = None,
        aspects = [],
        cfg = None,
        executable = False,
        flags = [],
        providers = []
    ):
        return _attribute(True, empty, default, mandatory, cfg)

    return attribute


attr = struct(
    bool = _plain(False),
    int = _plain(0),
    int_list = _plain([]),
    label = _labels(None),
    label_keyed_string_dict = _labels({}),
    label_list = _labels([]),
    output = _plain(None),
    output_list = _plain([]),
    string = _plain(""),
    string_dict = _plain({}),
    string_list = _plain([]),
    string_list_dict = _plain({}),
)


def _setting(*, flag = False, allow_multiple = False, repeatable = False):
    return struct(flag = flag)


config = struct(
    bool = _setting,
    exec = lambda exec_group = None: struct(),
    int = _setting,
    none = lambda: struct(),
    string = _setting,
    string_list = _setting,
    string_set = _setting,
    target = lambda: struct(),
)
config_common = struct(toolchain_type = lambda name, mandatory = True: name)


def configuration_field(fragment, name):
    return None


def exec_group(*, toolchains = [], exec_compatible_with = []):
    return struct()


def transition(implementation, inputs, outputs):
    return struct()


def visibility(value):
    pass


# Values of all attributes: given, or by default.
def _values(what, attributes, given, others = []):
    for name in given:
        if name not in attributes and name not in others:
            fail("%s has no attribute %s" % (what, name))
    for name, attribute in attributes.items():
        if attribute.mandatory and name not in given:
            fail("%s lacks the attribute %s" % (what, name))
    return {name: given.get(name, attribute.default) for name, attribute in attributes.items()}


# Rules.
def rule(
    implementation,
    *,
    test = False,
    attrs = {},
    outputs = None,
    executable = False,
    output_to_genfiles = False,
    fragments = [],
    toolchains = [],
    doc = "",
    provides = [],
    exec_compatible_with = [],
    analysis_test = False,
    build_setting = None,
    cfg = None,
    exec_groups = None,
    initializer = None,
    parent = None,
    extendable = None,
    subrules = []
):
    _python_references(call_stack(), [Label(label) for label in toolchains])
    others = _COMMON + (_OF_TESTS if test or executable else []) + (["build_setting_default"] if build_setting else [])

    def instance(*, name, **given):
        values = _values("the rule of " + name, attrs, given, others)
        labels = [values[key] for key in attrs if attrs[key].labels]
        _python_target(call_stack(), name, labels, given.get("outs", []))

    return instance


def _built_in(labels, others, test = False):
    attributes = {name: attr.label() for name in labels}
    attributes.update({name: attr.string() for name in others})
    return rule(implementation = None, attrs = attributes, test = test)


_RULES = {
    "alias": _built_in(["actual"], []),
    "config_setting": _built_in(["constraint_values", "flag_values"], ["define_values", "values"]),
    "constraint_setting": _built_in(["default_constraint_value"], []),
    "constraint_value": _built_in(["constraint_setting"], []),
    "filegroup": _built_in(["data", "srcs"], ["output_group", "path"]),
    "genrule": _built_in(
        ["srcs", "tools"],
        ["cmd", "cmd_bash", "cmd_bat", "cmd_ps", "executable", "local", "message", "outs", "output_to_bindir", "stamp"],
    ),
    "label_flag": _built_in(["build_setting_default"], []),
    "label_setting": _built_in(["build_setting_default"], []),
    "platform": _built_in(["constraint_values", "parents"], ["flags", "required_settings"]),
    "test_suite": _built_in(["tests"], []),
    "toolchain": _built_in(["toolchain", "toolchain_type"], ["target_settings"]),
    "toolchain_type": _built_in([], ["no_match_error"]),
}

alias = _RULES["alias"]
config_setting = _RULES["config_setting"]
constraint_setting = _RULES["constraint_setting"]
constraint_value = _RULES["constraint_value"]
filegroup = _RULES["filegroup"]
genrule = _RULES["genrule"]
label_flag = _RULES["label_flag"]
label_setting = _RULES["label_setting"]
platform = _RULES["platform"]
test_suite = _RULES["test_suite"]
toolchain = _RULES["toolchain"]
toolchain_type = _RULES["toolchain_type"]


# Functions of BUILD files.
def package(*, default_deprecation = None, default_testonly = False, default_visibility = [], features = []):
    pass


def package_group(*, name, packages = [], includes = []):
    _python_target(call_stack(), name, includes, [])


def exports_files(srcs, visibility = None, licenses = None):
    _python_exports(srcs)


def glob(include = [], exclude = [], exclude_directories = 1, allow_empty = False):
    return _python_glob(include, exclude, allow_empty)


def package_name():
    return _python_package()


native = struct(
    bazel_version = "9.0.0",
    existing_rule = lambda name: None,
    existing_rules = lambda: {},
    exports_files = exports_files,
    glob = glob,
    package_group = package_group,
    package_name = package_name,
    package_relative_label = lambda label: struct(**_python_package_relative(label)),
    repo_name = lambda: "",
    repository_name = lambda: "@",
    **_RULES
)


# Repositories. A repository rule is run at once, on a machine that has all files that it looks for.
def repository_rule(implementation, *, attrs = {}, local = False, environ = [], configure = False, remotable = False, doc = ""):
    def repository(*, name, **given):
        path = lambda of: struct(exists = True, realpath = struct(dirname = of), basename = of)
        implementation(
            struct(
                name = name,
                attr = struct(**_values("the rule of repository " + name, attrs, given)),
                execute = lambda *arguments, **options: _execute(name),
                file = lambda path, content = "", executable = True: _python_write(name, path, content),
                os = struct(environ = {}),
                path = path,
                report_progress = lambda text: None,
                symlink = lambda target, link: _python_write(name, link, ""),
                which = lambda program: path("/usr/bin/" + program),
            )
        )

    return repository


def _execute(name):
    # The files that fetch_torch.py is sure to make.
    _python_write(name, "include/torch/torch.h", "")
    _python_write(name, "lib/libtorch.so", "")
    return struct(return_code = 0, stdout = "", stderr = "")


def tag_class(attrs = {}, *, doc = ""):
    return attrs


def module_extension(implementation, *, tag_classes = {}, doc = "", environ = [], os_dependent = False, arch_dependent = False):
    def run(modules):
        implementation(struct(modules = [_module(module, tag_classes) for module in modules]))

    return struct(tags = {tag: attributes.keys() for tag, attributes in tag_classes.items()}, run = run)


def _module(module, tag_classes):
    tags = {
        tag: [struct(**_values("the tag " + tag, attributes, given)) for given in module["tags"].get(tag, [])]
        for tag, attributes in tag_classes.items()
    }
    return struct(name = module["name"], is_root = module["is_root"], version = "", tags = struct(**tags))


# MODULE.bazel.
def module(*, name = "", version = "", repo_name = None, compatibility_level = 0, bazel_compatibility = []):
    pass


def bazel_dep(*, name, version = "", max_compatibility_level = -1, repo_name = "", dev_dependency = False):
    _python_sees(repo_name or name, name)


def use_extension(extension_bzl_file, extension_name, *, dev_dependency = False, isolate = False):
    used = _python_use_extension(extension_bzl_file, extension_name)

    def tag_of(name):
        def tag(**values):
            _python_tag(used["id"], name, values)

        return tag

    return struct(id = used["id"], **{name: tag_of(name) for name in used["tags"]})


def use_repo(extension_proxy, *names, **renamed):
    for name in names:
        _python_use_repo(call_stack(), extension_proxy.id, name, name)
    for name, of in renamed.items():
        _python_use_repo(call_stack(), extension_proxy.id, name, of)


def _override(**values):
    pass


archive_override = _override
git_override = _override
local_path_override = _override
single_version_override = _override


def register_toolchains(*labels, dev_dependency = False):
    pass


def register_execution_platforms(*labels, dev_dependency = False):
    pass
