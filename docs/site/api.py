"""The declarations of headers with their comments, as reStructuredText, from Doxygen's XML."""

import pathlib
import re
import textwrap
import xml.etree.ElementTree as tree

_CLASSES = ("class", "struct", "union")
_DIRECTIVES = {"function": "function", "variable": "member", "typedef": "type"}
_KINDS = {*_CLASSES, *_DIRECTIVES, "enum", "define"}
_STATEMENT = re.compile(r"[;{}] *(?://.*)?$", re.M)
_NO_SPACE = "\0"  # between words and markup


def _indented(text):
    return textwrap.indent(text, "   ")


def _plain(element):
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def _escaped(text):
    return re.sub(r"([\\*`_|])", r"\\\1", text or "")


class Api:
    """What Doxygen has read: the folder of its XML, and the root of the headers."""

    def __init__(self, folder, root):
        self._root = root
        self._names = {}  # {id: the C++ name}
        self._files = {}  # {header: its comment}
        self._classes = {}  # {id: compound}
        self._top = {}  # {header: declarations}
        nested = set()
        for path in sorted(pathlib.Path(folder).glob("*_*.xml")):
            for compound in tree.parse(path).iter("compounddef"):
                name, kind = compound.findtext("compoundname"), compound.get("kind")
                if kind != "file":
                    self._names[compound.get("id")] = name
                for member in compound.iter("memberdef"):
                    self._names[member.get("id")] = member.findtext("qualifiedname") or member.findtext("name")
                if kind == "file":
                    self._files[self._header(compound)] = compound
                if kind in _CLASSES:
                    self._classes[compound.get("id")] = compound
                    nested.update(inner.get("refid") for inner in compound.iter("innerclass"))
                else:
                    for member in compound.iter("memberdef"):
                        self._top.setdefault(self._header(member), {})[member.get("id")] = (
                            member,
                            name if kind == "namespace" else "",
                        )
        for key in self._classes.keys() - nested:
            compound = self._classes[key]
            namespace = compound.findtext("compoundname").rpartition("::")[0]
            self._top.setdefault(self._header(compound), {})[key] = (compound, namespace)

    def _header(self, element):
        return element.find("location").get("file")

    def page(self, header):
        """The reStructuredText of a header."""
        lines = (self._root / header).read_text().splitlines()
        parts, scope = [self._comment(self._files[header])], None
        for declarations, namespace in self._groups(self._top.get(header, {}).values(), lines):
            if namespace != scope:
                parts.append(f".. cpp:namespace:: {namespace or 'NULL'}")
                scope = namespace
            parts.append(self._entry(declarations, lines))
        return "\n\n".join(filter(None, parts)) + "\n"

    def _groups(self, declarations, lines):
        """In the header's order. A function without a comment, directly below another one, shares its comment."""
        groups, line = [], 0
        shown = [pair for pair in declarations if self._is_shown(pair[0])]
        for element, namespace in sorted(shown, key=lambda pair: int(pair[0].find("location").get("line"))):
            before, line = line, int(element.find("location").get("line"))
            is_more = (
                groups
                and element.get("kind") == groups[-1][0][-1].get("kind") == "function"
                and not self._comment(element)
                and all(map(str.strip, lines[before : line - 1]))
            )
            if is_more:
                groups[-1][0].append(element)
            else:
                groups.append(([element], namespace))
        return groups

    def _is_shown(self, element):
        name = element.findtext("compoundname") or element.findtext("name")
        if element.get("kind") not in _KINDS or re.search("<|internal|^@|_$", name):
            return False  # a specialization, or what only a template or a macro needs
        return element.get("prot", "public") != "private" and not element.findtext("argsstring", "").endswith("=delete")

    def _entry(self, elements, lines):
        element = elements[0]
        kind = element.get("kind")
        if kind in _CLASSES:
            bases = ", ".join(base.text for base in element.iter("basecompoundref") if base.get("prot") == "public")
            name = element.findtext("compoundname").rpartition("::")[2]
            head = f".. cpp:{kind}:: {self._template(element)}{name}{' : ' * bool(bases)}{bases}"
            members = [(member, "") for member in element.iter("memberdef")]
            members += [
                (self._classes[inner.get("refid")], "")
                for inner in element.iter("innerclass")
                if inner.get("refid") in self._classes
            ]
            content = [self._entry(group, lines) for group, _ in self._groups(members, lines)]
        elif kind == "enum":
            strong = "-class" if element.get("strong") == "yes" else ""
            head, content = f".. cpp:enum{strong}:: {element.findtext('name')}", []
            for value in element.iter("enumvalue"):
                content.append(
                    f".. cpp:enumerator:: {value.findtext('name')}\n\n{_indented(self._comment(value))}".strip()
                )
        elif kind == "define":
            arguments = ", ".join(_plain(argument.find("defname")) for argument in element.iter("param"))
            head, content = f".. c:macro:: {element.findtext('name')}{f'({arguments})' * bool(arguments)}", []
        else:
            begin = f".. cpp:{_DIRECTIVES[kind]}:: "
            head, content = begin + f"\n{' ' * len(begin)}".join(map(self._signature, elements)), []
        return "\n\n".join([head, *(_indented(part) for part in [self._comment(element), *content] if part)])

    def _template(self, element):
        parameters = element.find("templateparamlist")
        if parameters is None:
            return ""
        words = []
        for parameter in parameters:
            value = parameter.find("defval")
            words.append(" ".join(filter(None, [_plain(parameter.find("type")), parameter.findtext("declname")])))
            words[-1] += f" = {_plain(value)}" if value is not None else ""
        return f"template <{', '.join(words)}> "

    def _signature(self, element):
        name, kind = element.findtext("name"), _plain(element.find("type"))
        if element.get("kind") == "typedef":
            return f"{self._template(element)}{name} = {kind}"
        words = "static " * (element.get("static") == "yes") + "explicit " * (element.get("explicit") == "yes")
        value = element.find("initializer")
        end = element.findtext("argsstring") or (f" {_plain(value)}" if value is not None else "")
        return f"{self._template(element)}{words}{kind}{' ' * bool(kind)}{name}{re.sub(chr(10), ' ', end)}"

    def _comment(self, element):
        parts = [
            self._text(part)
            for part in (element.find("briefdescription"), element.find("detaileddescription"))
            if part is not None
        ]
        return "\n\n".join(filter(None, parts))

    def _text(self, element):
        """The paragraphs of a description."""
        blocks, words = [], _escaped(element.text)

        def end():
            nonlocal words
            if words.strip():
                blocks.append(re.sub(r"\s+", " ", words).strip().strip(_NO_SPACE).replace(_NO_SPACE, "\\ "))
            words = ""

        for child in element:
            if child.tag == "computeroutput":
                words += f"{_NO_SPACE}``{_plain(child)}``{_NO_SPACE}"
            elif child.tag == "ref" and child.get("refid") in self._names:
                words += f"{_NO_SPACE}:cpp:any:`{_plain(child)} <{self._names[child.get('refid')]}>`{_NO_SPACE}"
            elif child.tag in ("ulink", "ref", "emphasis", "bold"):
                words += _escaped(_plain(child))
            elif child.tag in ("ndash", "mdash"):
                words += {"ndash": "--", "mdash": "---"}[child.tag]
            else:
                end()
                if child.tag == "verbatim":
                    code = textwrap.dedent(child.text.strip("\n").rstrip())
                    language = "cpp" if _STATEMENT.search(code) else "text"  # which a program prints
                    blocks.append(f".. code-block:: {language}\n   :force:\n\n{_indented(code)}")
                elif child.tag == "itemizedlist":
                    blocks += ["- " + _indented(self._text(item)).strip() for item in child]
                else:
                    blocks.append(self._text(child))
            words += _escaped(child.tail)
        end()
        return "\n\n".join(filter(None, blocks))
