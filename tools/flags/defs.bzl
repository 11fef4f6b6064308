"""A command-line switch that is true or false."""


def _impl(_ctx):
    return []


bool_flag = rule(
    implementation = _impl,
    build_setting = config.bool(flag = True),
)
