#!/usr/bin/env python3
"""Prints the manual page of `launch`, or its completion for bash, from what its --help says: manual.py page|bash LAUNCH.

Install the page as man1/launch.1, and the completion as bash-completion/completions/launch. In zsh, source it after
`autoload -U bashcompinit; bashcompinit`.
"""

import re
import subprocess
import sys

_ROW = re.compile(r"^  (?:-(\w), )?((?:--)?\w+)(?:=(\S+))?(?: {2,}(.*))?$")
_COMMAND = re.compile(r"^  ([a-z]+) .*?  ", re.M)

_BASH = r"""# Completion of launch for bash: made by launch/manual.py.

_launch() {
  local flags='%(switches)s' with_value='%(with_value)s' commands='%(commands)s'
  local word=${COMP_WORDS[COMP_CWORD]} i=1 each
  COMPREPLY=()
  ((COMP_CWORD == 1)) || case ${COMP_WORDS[1]} in
%(of_commands)s
  esac
  # A word that is neither a flag nor the value of one is the program: what follows it is not for launch.
  while ((i < COMP_CWORD)); do
    each=${COMP_WORDS[i]//-/_}
    [[ ${COMP_WORDS[i]} == -?* && ${COMP_WORDS[i]} != -- ]] || return 0
    if [[ ${COMP_WORDS[i + 1]} == = ]]; then
      ((i += 2))
    elif [[ " ${with_value//-/_} " == *" $each "* ]]; then
      ((i += 1))
    fi
    ((i += 1))
  done
  ((i == COMP_CWORD)) && [[ $word != = ]] || return 0
  if [[ $word != -* ]]; then
    # Where nothing fits, bash completes the name of a file.
    ((i > 1)) || [[ ! $word ]] || COMPREPLY=($(compgen -W "$commands" -- "$word"))
    return 0
  fi
  # Both spellings of a flag are right: the word decides.
  [[ $word != --*-* ]] || flags=${flags//_/-} with_value=${with_value//_/-}
  COMPREPLY=($(compgen -W "$flags" -- "$word") $(compgen -W "$with_value" -S = -- "$word"))
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || true
}
complete -o bashdefault -o default -F _launch launch
"""


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout


class Help:
    """The parts of --help."""

    def __init__(self, launch):
        blocks = run(launch, "--help").rstrip("\n").split("\n\n")
        self.version = run(launch, "--version").split()[-1]
        self.usage, self.summary, self.examples, commands, self.spelling, *groups, self.ending = blocks
        self.commands = {name: run(launch, name, "--help").strip() for name in _COMMAND.findall(commands)}
        self.commands_note = re.search(r"^  (These are .*(?:\n  .*)*)", commands, re.M)[1]
        self.groups = [self._group(block) for block in groups if "\n  " in block]
        self.secrets = " ".join(block for block in groups if "\n  " not in block)
        self.rows = [row for _, rows, _ in self.groups for row in rows]

    @staticmethod
    def _group(block):
        """(title, [[letter, name, value, help]], text after them) of a group of flags."""
        title, *lines = block.split("\n")
        rows, ending = [], []
        for line in lines:
            if row := _ROW.match(line):
                rows.append([row[1], row[2], row[3], row[4] or ""])
            elif rows and line.startswith(" " * 30):
                rows[-1][3] += " " + line.strip()
            else:
                ending.append(line.strip())
        return title, rows, " ".join(ending)


def roff(text):
    text = re.sub(r"\s+", " ", text).strip().replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def literal(text):
    """Lines that are not filled."""
    return [".nf", *map(roff, text.split("\n")), ".fi"]


def entries(rows):
    for i, (letter, name, value, text) in enumerate(rows):
        names = ", ".join(rf"\fB{roff(each)}\fR" for each in ([f"-{letter}"] if letter else []) + [name])
        yield ".TQ" if i and not rows[i - 1][3] else ".TP"
        yield names + (rf"=\fI{roff(value)}\fR" if value else "")
        if text:
            yield roff(text)


def paragraphs(text):
    for block in text.split("\n\n"):
        yield ".PP"
        yield from literal(block) if block.startswith("  ") else [roff(block)]


def page(found):
    about, exit_code = re.split(r"The exit\s+code is", found.ending)
    variables = [
        [*row[:3], row[3].strip().removeprefix("variable: ")] for row in found.rows if not row[1].startswith("-")
    ]
    lines = [f'.TH LAUNCH 1 "" "Lockstep {found.version}" "User Commands"', ".SH NAME"]
    lines += [r"launch \- start the ranks of a job, and supervise them", ".SH SYNOPSIS"]
    lines += literal(re.sub(r"^(?:usage:)? +|^usage: ", "", found.usage, flags=re.M))
    lines += [".SH DESCRIPTION", roff(found.summary), ".PP", roff(about), ".SH OPTIONS", roff(found.spelling)]
    for title, rows, ending in found.groups:
        lines += [f".SS {roff(title)}", *entries([row for row in rows if row[1].startswith("-")])]
        lines += [".PP", roff(ending)] * bool(ending)
    lines += [".SH COMMANDS", roff(found.commands_note)]
    for name, text in found.commands.items():
        usage, _, rest = text.removeprefix("usage: ").partition("\n\n")
        lines += [f".SS {roff(usage)}", *list(paragraphs(rest))[1:]]
    lines += [".SH EXIT STATUS", roff("The exit code is" + exit_code), ".SH ENVIRONMENT", *entries(variables)]
    lines += [".TP", r"\fBPET_\fIFLAG\fR", "the value of a flag that is not given", ".PP", roff(found.secrets)]
    lines += [".SH EXAMPLES", *literal(found.examples)]
    return "\n".join([*lines, ".SH SEE ALSO", r"\fBtorchrun\fR, \fBsrun\fR(1), \fBmpirun\fR(1)"]) + "\n"


def flags_of(text):
    return [*re.findall(r"^  (--[a-z]+)", text, re.M), "--help"]


def bash(found):
    flags = [row for row in found.rows if row[1].startswith("-")]
    letters = {True: [], False: []}
    for letter, name, value, _ in flags:
        letters[bool(value)] += [name] + [f"-{letter}"] * bool(letter)
    of_commands = [
        f"    {name}) COMPREPLY=($(compgen -W '{' '.join(flags_of(text))}' -- \"$word\")); return 0 ;;"
        for name, text in found.commands.items()
    ]
    return _BASH % {
        "switches": " ".join(letters[False]),
        "with_value": " ".join(letters[True]),
        "commands": " ".join(found.commands),
        "of_commands": "\n".join(of_commands),
    }


def main():
    makers = {"page": page, "bash": bash}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    print(makers[sys.argv[1]](Help(sys.argv[2])), end="")


if __name__ == "__main__":
    main()
