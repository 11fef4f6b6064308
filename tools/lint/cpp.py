"""The rules of the house for C++ sources: namespaces, std::optional, LibTorch's symbols and slow headers, conditions on
pointers, and functions without a definition."""

import pathlib
import re

_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])\'', re.S
)
_NAMESPACE = re.compile(r"^(?:inline )?namespace (lockstep(?:::\w+)*) \{", re.M)
_OPTIONAL = re.compile(r"\babsl::(?:optional|nullopt|make_optional)\b")
_NULLPTR = re.compile(r"[!=]=\s*nullptr\b|\bnullptr\s*[!=]=")
_CONDITION = re.compile(r"\b(?:if|while)\s*(?:constexpr\s*)?\(")

SOURCES = (".h", ".cc", ".c", ".cu")

# Folders that are not part of the namespace of what is in them.
_WITHOUT_NAMESPACE = ("base", "posix", "tools", "bench")
_FREE = ("_test.cc", "_fuzzer.cc", "_fuzz.cc")


def comments(text):
    """Matches of the // comments, without what looks like one in a string."""
    return (match for match in _COMMENT_OR_STRING.finditer(text) if match.group().startswith("//"))


def code_of(text):
    """The text without comments and the contents of strings; lines stay where they are."""
    return _COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def _line(text, position):
    return text.count("\n", 0, position) + 1


def _is_subsequence(parts, whole):
    rest = iter(whole)
    return all(part in rest for part in parts)


def _may_be_anywhere(path):
    """A test, a fuzzer, a peer program and what causes failures may live in the namespace that they test."""
    return path.name.endswith(_FREE) or bool({"peer", "failures", "fuzz"} & set(path.parts))


def _folders(path):
    folders = list(path.parts[:-1])
    while folders and folders[0] in _WITHOUT_NAMESPACE:
        folders.pop(0)
    return folders


def namespace_problem(path, namespace):
    """Returns the fault of a namespace of a file, or None. Its parts are folders of the file, in order, from the first one on."""
    parts, folders = namespace.split("::")[1:], _folders(path)
    expected = "::".join(["lockstep", *folders])
    special = [name for name in ("internal", "testing") if (name in folders) != (name in parts)]
    if special or not _is_subsequence(parts, folders) or parts[:1] != folders[:1]:
        return f"is not the folder's: {expected}, or that without a folder in the middle"
    return None


def namespaces(path, code):
    """A namespace of a file is its folder's. `internal` in it is for what templates need, and for the source of that.

    A file that only defines members of a class is in the namespace of the class.
    """
    if _may_be_anywhere(path):
        return
    found = [(match.group(1), match.start()) for match in _NAMESPACE.finditer(code)]
    right = {namespace for namespace, _ in found if namespace_problem(path, namespace) is None}
    if path.suffix == ".cc":
        right.add("::".join(["lockstep", *_folders(path)]))
    for namespace, position in found:
        is_detail = namespace.endswith("::internal") and namespace.removesuffix("::internal") in right
        if namespace_problem(path, namespace) and not is_detail and not _defines_only_members(code, position):
            yield f"{path}:{_line(code, position)}: namespace {namespace} {namespace_problem(path, namespace)}"


def _defines_only_members(code, position):
    block = code[position : _closing(code, code.index("{", position), "{}")]
    if inner := re.search(r"\bnamespace internal (?=\{)", block):
        block = block[: inner.start()] + block[_closing(block, inner.end(), "{}") :]
    found = definitions(block)
    return (
        bool(found) and all(owner for owner, _ in found) and not re.search(r"\b(?:class|struct)\s+\w+[^;({]*\{", block)
    )


def std_optional(path, code):
    for match in _OPTIONAL.finditer(code):
        yield f"{path}:{_line(code, match.start())}: {match.group()}: use std's, which every system has"


def typed_const_data_ptr(path, code):
    for match in re.finditer(r"\bconst_data_ptr<", code):
        yield (
            f"{path}:{_line(code, match.start())}: clang 18 and newer give const_data_ptr<T> another symbol than LibTorch has: "
            "cast const_data_ptr(), or use data_ptr<T>()"
        )


# A source that includes one of these compiles for seconds. headers_test.cc of each folder finds those that come by way of others.
_SLOW_HEADER = re.compile(r'^\s*#\s*include\s*[<"](torch/(?:data/.*|types\.h|torch\.h|all\.h))[>"]', re.M)
_LIGHT_FOLDERS = ("sampler", "data")
_ADAPTERS = ("sampler/torch_sampler.h", "data/torch_dataset.h")


def light_headers(path, text):
    """The headers of samplers and datasets include nothing of torch/data, except those that are made for it."""
    is_light = path.suffix == ".h" and path.parts[0] in _LIGHT_FOLDERS and "testing" not in path.parts
    for match in _SLOW_HEADER.finditer(text) if is_light and str(path) not in _ADAPTERS else ():
        yield f"{path}:{_line(text, match.start(1))}: includes {match.group(1)}, which takes seconds to compile: leave it to an adapter"


def unlisted_headers(sources):
    """Headers of samplers and datasets that their folder's headers_test.cc does not include, from {path: text} of all C++ files."""
    problems = []
    for folder in _LIGHT_FOLDERS:
        test = f"{folder}/headers_test.cc"
        for path in sorted(sources):
            is_header = path.endswith(".h") and path.rpartition("/")[0] == folder and path not in _ADAPTERS
            if is_header and f'#include "lockstep/{path}"' not in sources.get(test, ""):
                problems.append(f"{test}: does not include lockstep/{path}: it finds slow headers behind it")
    return problems


def _closing(code, start, pair="()"):
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for position in range(start, len(code)):
        depth += (code[position] == pair[0]) - (code[position] == pair[1])
        if depth == 0:
            return position
    return len(code)


def pointer_conditions(path, code):
    for match in _CONDITION.finditer(code):
        condition = code[match.end() : _closing(code, match.end() - 1)]
        if comparison := _NULLPTR.search(condition):
            number = _line(code, match.end() + comparison.start())
            yield f"{path}:{number}: compares a pointer with nullptr in a condition: write (pointer) or (!pointer)"


_CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:[A-Z_]+(?:\([^)]*\))?\s+)*(\w+)(?:\s+final)?\s*(?::[^:].*)?$", re.S)
_NO_DECLARATION = re.compile(
    r"\b(?:template|friend|using|typedef|operator|inline|constexpr|extern|static_assert|return|requires)\b|=|^\s*#"
)
_DECLARED = re.compile(r"^(.*?)(~?\w+)\s*\((?!\s*[*&])", re.S)
_STATEMENTS = ("if", "for", "while", "switch", "catch", "constexpr")
_CALLED = re.compile(r"((?:\w+(?:<[^<>();]*>)?::)*)(~?\b\w+)\s*\($")
_BODY = re.compile(
    r"\s*(?:const\b|noexcept\b|override\b|final\b|&&?|ABSL_\w+(?:\([^)]*\))?|->[^;{}()]+|\s)*(?::\s*[\w:<>, ]+[({]|\{|= default|try\b)"
)


def _without_templates(text):
    while (shorter := re.sub(r"<[^<>]*>", " ", text)) != text:
        text = shorter
    return text


def _without_preprocessor(code):
    return re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group()), code, flags=re.M
    )


def declarations(code):
    """(position, class or None, name) of the functions that a header declares and does not define in the same statement."""
    scopes, start = [], 0
    for match in re.finditer(r"[{};]", code):
        statement, bracket = code[start : match.start()], match.group()
        if bracket == "{":
            of_class = _CLASS.search(_without_templates(statement))
            if re.search(r"\bnamespace\b", statement) or 'extern "' in statement:
                scopes.append(("namespace", None))
            elif of_class and "(" not in statement.split(of_class.group(1))[0] and "=" not in statement:
                scopes.append(("class", of_class.group(1)))
            elif statement.count("(") > statement.count(")"):
                scopes.append(("argument", None))  # the statement goes on behind it
                continue
            else:
                scopes.append(("body", None))
        elif bracket == "}" and scopes:
            if scopes.pop()[0] == "argument":
                continue
        elif bracket == ";" and all(kind in ("namespace", "class") for kind, _ in scopes):
            text = re.sub(r"\[\[.*?\]\]|\b(?:public|private|protected):", " ", _without_templates(statement))
            text = re.sub(r"=\s*[^,()]*(?:\([^()]*\))?(?=[,)])", "", text)  # default arguments
            declared = None if _NO_DECLARATION.search(text) else _DECLARED.search(text)
            if declared and not declared.group(2).isupper() and not re.search(r"\bABSL_\w+$", declared.group(2)):
                of, name = scopes[-1][1] if scopes else None, declared.group(2)
                if declared.group(1).strip() or name.lstrip("~") == of:
                    yield start + len(statement) - len(statement.lstrip()), of, name
        if all(kind != "argument" for kind, _ in scopes):
            start = match.end()


def definitions(code):
    """{(class or None, name)} of the functions that have a body here. A namespace before a name counts as a class."""
    found, opened = set(), []
    for match in re.finditer(r"[()]", code):
        if match.group() == "(":
            opened.append(match.end())
        elif opened:
            begin = opened.pop()
            if _BODY.match(code, match.end()) and (called := _CALLED.search(code, max(0, begin - 160), begin)):
                owner = re.sub(r"<[^<>]*>", "", called.group(1)).removesuffix("::").rpartition("::")[2]
                if called.group(2) not in _STATEMENTS:
                    found.add((owner or None, called.group(2)))
    return found


def undefined(sources):
    """Functions that a header declares and no source defines, from {path: text} of all C++ files."""
    code = {path: _without_preprocessor(code_of(text)) for path, text in sources.items()}
    defined = {path: definitions(text) for path, text in code.items()}
    everywhere = set().union(*defined.values())
    names = {name for _, name in everywhere}
    problems = []
    for path in sorted(code):
        if not path.endswith(".h"):
            continue
        for position, of, name in declarations(code[path]):
            has_body = (of, name) in everywhere or (None, name) in defined[path] if of else name in names
            if not has_body:
                words = f"{of}::{name}" if of else name
                problems.append(
                    f"{path}:{_line(code[path], position)}: {words} is declared and not defined anywhere: delete it"
                )
    return problems


RULES = (namespaces, std_optional, typed_const_data_ptr, pointer_conditions)


def check(path, text):
    """The problems of one file."""
    path = pathlib.PurePath(path)
    if path.suffix not in (".h", ".cc"):
        return []
    code = code_of(text)
    return [problem for rule in RULES for problem in rule(path, code)] + list(light_headers(path, text))
