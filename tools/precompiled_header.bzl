"""A header that the compiler reads once for many sources."""

load("//third_party:cc_rules.bzl", "cc")


def _precompiled_header_impl(ctx):
    toolchain = cc.find_toolchain(ctx)
    clang = toolchain.compiler == "clang"
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "")
    output = ctx.actions.declare_file(header.basename + (".pch" if clang else ".gch"))

    # Clang also keeps the template instantiations, and not the headers' times, which another checkout does not share.
    options = ["-Xclang", "-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"] if clang else []
    deps = cc.common.merge_cc_infos(cc_infos = [dep[cc.Info] for dep in ctx.attr.deps]).compilation_context
    _precompile(ctx, toolchain, deps, options, output)
    stamp = _stamp(ctx, None if clang else output)

    # Clang names what it precompiled among the headers of each source.
    headers = depset([header, stamp, output, ctx.file.src] + ctx.files.textual_hdrs, transitive = [deps.headers])
    context = cc.common.create_compilation_context(headers = headers)
    return [DefaultInfo(files = depset([header, stamp, output])), cc.Info(compilation_context = context)]


# g++ names neither the precompiled header nor what is in it among the headers of a source, so Bazel would not compile the
# source again after a change. It names NAME.stamp.h, which has the hash of the precompiled header.
def _stamp(ctx, precompiled):
    stamp = ctx.actions.declare_file(ctx.label.name + ".stamp.h")
    if not precompiled:
        ctx.actions.write(stamp, "")
        return stamp
    ctx.actions.run_shell(
        command = 'echo "// $(sha256sum <$1)" >$2',
        arguments = [precompiled.path, stamp.path],
        inputs = [precompiled],
        outputs = [stamp],
        mnemonic = "PrecompiledHeaderStamp",
    )
    return stamp


def _precompile(ctx, toolchain, context, options, output):
    features = cc.common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc.common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        source_file = ctx.file.src.path,
        output_file = output.path,
        user_compile_flags = ctx.fragments.cpp.copts
        + ctx.fragments.cpp.cxxopts
        + ctx.attr.copts
        + options
        + ["-x", "c++-header"],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = toolchain.needs_pic_for_dynamic_libraries(feature_configuration = features),
    )
    action = "c++-compile"
    ctx.actions.run(
        executable = cc.common.get_tool_for_action(feature_configuration = features, action_name = action),
        arguments = cc.common.get_memory_inefficient_command_line(
            feature_configuration = features, action_name = action, variables = variables
        ),
        env = cc.common.get_environment_variables(
            feature_configuration = features, action_name = action, variables = variables
        ),
        inputs = depset([ctx.file.src] + ctx.files.textual_hdrs, transitive = [context.headers, toolchain.all_files]),
        outputs = [output],
        # Clang's has absolute paths, so that of another checkout, from the shared disk cache, is of no use here.
        execution_requirements = {"no-cache": "1"},
        # As other compiles, for what .bazelrc says about them.
        mnemonic = "CppCompile",
        progress_message = "Precompiling " + ctx.file.src.path,
    )


# `src` precompiled, for sources compiled with `-include` and the path of NAME.h, beside which the compilers look for what they
# precompiled, and then with `-include` and the path of NAME.stamp.h. NAME.h itself is empty: where the flags do not agree, g++
# compiles a source as if there were neither.
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "textual_hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [cc.Info]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
