"""Just enough of C to find includes and functions, without a compiler."""
import re

# A comment, a string, a character constant; what is not closed ends with its line or the file.
TOKENS = re.compile(
    r"""(?P<block>/\*.*?(?:\*/|\Z))
      | (?P<line>//(?:\\\n|[^\n])*)
      | (?P<string>"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z))
      | (?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z))""",
    re.VERBOSE | re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]*)"|<([^>\n]*)>)', re.MULTILINE)
TAG = re.compile(r"\b(?:struct|union|enum)\s+([A-Za-z_]\w*)\s*\{")
DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)")
NAME_BEFORE = re.compile(r"([A-Za-z_]\w*)\s*$")


def has_word(text, word):
    return re.search(r"(?<![A-Za-z0-9_])" + word + r"(?![A-Za-z0-9_])", text) is not None


def blank(text):
    return "".join(c if c == "\n" else " " for c in text)


def strip(text):
    """The text with comments, strings and characters blanked out, line for line."""
    return TOKENS.sub(lambda match: blank(match.group()), text)


def includes(text, code):
    """(line, target, is it in <>) of each include that is not in a comment."""
    for match in INCLUDE.finditer(text):
        hash_at = text.index("#", match.start())
        if code[hash_at] != "#":
            continue
        line = text.count("\n", 0, hash_at) + 1
        yield line, match.group(1) or match.group(2) or "", match.group(1) is None


def tags(code):
    """(line, name) of each struct, union and enum that is defined, not only named."""
    for match in TAG.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match.group(1)


def without_directives(code):
    """Blanks preprocessor lines, and every branch of a conditional but its first, so that braces
    pair up also where both branches open one."""
    out = []
    branches = []  # for each open conditional: are we past its first branch?
    continued = False
    for line in code.split("\n"):
        match = None if continued else DIRECTIVE.match(line)
        is_directive = continued or match is not None
        continued = is_directive and line.rstrip().endswith("\\")
        word = match.group(1) if match else ""
        if word in ("if", "ifdef", "ifndef"):
            branches.append(False)
        elif word in ("else", "elif") and branches:
            branches[-1] = True
        elif word == "endif" and branches:
            branches.pop()
        out.append("" if is_directive or any(branches) else line)
    return "\n".join(out)


def matching_open(code, close):
    """Index of the parenthesis that the one at `close` closes, -1 if there is none."""
    depth = 0
    for i in range(close, -1, -1):
        if code[i] == ")":
            depth += 1
        elif code[i] == "(":
            depth -= 1
            if depth == 0:
                return i
    return -1


def function_before(code, brace):
    """(name, index of the name) if the brace opens a function's body, else None. What stands before
    it ends with the parameter list, or with attributes behind that."""
    end = len(code[:brace].rstrip())
    found = None
    while end > 0 and code[end - 1] == ")":
        opening = matching_open(code, end - 1)
        if opening < 0:
            return None
        match = NAME_BEFORE.search(code[:opening][-200:])
        if not match:
            return None
        start = len(code[:opening]) - len(code[:opening][-200:]) + match.start()
        found = (match.group(1), start)
        if match.group(1) != "__attribute__":
            return found
        end = len(code[:start].rstrip())
    return None


def functions(code):
    """(name, first line, last line) of each function; the first line is that of its name."""
    code = without_directives(code)
    depth = 0
    current = None
    for match in re.finditer(r"[{}]", code):
        at = match.start()
        if match.group() == "{":
            if depth == 0:
                current = function_before(code, at)
                if current is None and re.search(r"extern\s*$", code[:at]):
                    continue  # extern "C" { : its contents are at the top as well
            depth += 1
            continue
        if depth > 0:
            depth -= 1
            if depth == 0 and current:
                name, start = current
                yield name, code.count("\n", 0, start) + 1, code.count("\n", 0, at) + 1
                current = None
