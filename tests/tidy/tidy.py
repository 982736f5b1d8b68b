#!/usr/bin/env python3
"""Checks the tree against its own rules: who includes whom, where each library is named, lengths,
names, and words that must not be in it. Prints one line for each violation, "path:line: sentence",
and exits with 1 if there was any; warnings do not count.

    tests/tidy/tidy.py [ROOT]            all checks but the format
    tests/tidy/tidy.py --format [ROOT]   clang-format only; exits with 77 where it is not installed

The tables rooms.txt and libraries.txt lie in tests/tidy of the tree that is checked.
"""
import argparse
import ast
import pathlib
import shutil
import subprocess
import sys

import c_text
import tables

FILE_LINES_MAX = 800
FILE_LINES_WARN = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
README_LINES_MAX = 150
SKIPPED = 77

# An opaque type of a public header, made by each of several files.
MADE_SEVERAL_TIMES = {"mover", "mover_peer"}

C_SUFFIXES = {".c", ".h", ".def", ".cu", ".cuh"}
CODE_SUFFIXES = C_SUFFIXES | {".py", ".sh", ".cmake", ".sql", ".html", ".js", ".css"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".txt", ".json", ".ini", ".service", ".target", ".scd"}
SKIPPED_FOLDERS = {".git", "build", "__pycache__"}
REPEATED_NAMES = {"README.md", "CMakeLists.txt", "__init__.py", ".gitignore"}

# Written in two pieces, so that this file passes its own check.
FORBIDDEN_WORDS = [("TO" "DO", "a comment mark"), ("FIX" "ME", "a comment mark"),
                   ("X" "XX", "a comment mark"), ("HA" "CK", "a comment mark")]
FORBIDDEN_PATHS = ["/wo" "rk/", "/tmp/bui" "ld", "/ro" "ot/", "/ho" "me/"]


class Tree:
    """The files of a source tree and the violations found in them."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.violations = []
        self.warnings = []
        self.paths = sorted(self._walk(self.root))
        self.rooms = tables.read_rooms(self.root / "tests/tidy/rooms.txt")
        self.libraries = tables.read_libraries(self.root / "tests/tidy/libraries.txt")

    def _walk(self, folder):
        for entry in folder.iterdir():
            if entry.is_symlink():
                continue
            if entry.is_dir():
                if entry.name not in SKIPPED_FOLDERS:
                    yield from self._walk(entry)
            else:
                yield entry.relative_to(self.root).as_posix()

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def fail(self, path, line, sentence):
        self.violations.append((path, line, sentence))

    def warn(self, path, line, sentence):
        self.warnings.append((path, line, sentence))


def suffix_of(path):
    return pathlib.PurePosixPath(path).suffix


def is_script(tree, path):
    return suffix_of(path) == "" and tree.text(path).startswith("#!")


def is_code(tree, path):
    return (suffix_of(path) in CODE_SUFFIXES or path.endswith("CMakeLists.txt")
            or is_script(tree, path))


def is_text(tree, path):
    return suffix_of(path) in TEXT_SUFFIXES or is_script(tree, path)


def check_rooms(tree):
    """Every folder with C in it is a room of the table, and every room has a short README."""
    known = {room.split("/")[0] for room in tree.rooms}
    seen = set()
    for path in tree.paths:
        top = path.split("/")[0]
        if suffix_of(path) in C_SUFFIXES and top not in known and top not in seen:
            tree.fail(path, 1, f"the folder {top} is not in tests/tidy/rooms.txt")
            seen.add(top)
    for room in sorted(known):
        if not (tree.root / room).is_dir():
            continue
        readme = f"{room}/README.md"
        if readme not in tree.paths:
            tree.fail(readme, 1, f"the room {room} has no README.md")
            continue
        lines = len(tree.text(readme).splitlines())
        if lines > README_LINES_MAX:
            tree.fail(readme, 1, f"{lines} lines, over the limit of {README_LINES_MAX}")


def check_private(tree, path, line, target):
    """other/thing_internal.h is for its own room and that room's tests."""
    if not target.endswith("_internal.h"):
        return
    owner = target.split("/")[0]
    parts = path.split("/")
    if parts[0] == owner or parts[:2] == ["tests", owner]:
        return
    tree.fail(path, line, f"{target} is private to {owner}")


def check_own_include(tree, path, line, target):
    if not (tree.root / target).is_file():
        tree.fail(path, line, f'"{target}" is not a path from the root of the tree')
        return
    check_private(tree, path, line, target)
    room = tables.room_of(tree.rooms, path)
    other = tables.room_of(tree.rooms, target)
    if room is None or room == other or tables.allows([room, *tree.rooms[room]], target):
        return
    tree.fail(path, line, f"{room} may not include {target}")


def check_library_include(tree, path, line, header):
    rows = [row for row in tree.libraries if row.has_header(header)]
    if not rows:
        tree.fail(path, line, f"<{header}> is in no row of tests/tidy/libraries.txt")
    elif not any(row.allows(path) for row in rows):
        tree.fail(path, line, f"<{header}> ({rows[0].name}) may not be included here")


def check_library_names(tree, path, code):
    for row in tree.libraries:
        if row.allows(path) or not row.names:
            continue
        for line, name in row.uses(code):
            tree.fail(path, line, f"{name} belongs to {row.name}, which is not to be named here")


def check_c(tree, path):
    text = tree.text(path)
    code = c_text.strip(text)
    for line, target, angled in c_text.includes(text, code):
        if angled:
            check_library_include(tree, path, line, target)
        else:
            check_own_include(tree, path, line, target)
    check_library_names(tree, path, code)
    for name, first, last in c_text.functions(code):
        length = last - first + 1
        if length > FUNCTION_LINES_MAX:
            tree.fail(path, first, f"{name} has {length} lines, over the limit of "
                                   f"{FUNCTION_LINES_MAX}")
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            tree.fail(path, number, "a tab")


def check_python(tree, path):
    try:
        module = ast.parse(tree.text(path))
    except SyntaxError as error:
        tree.fail(path, error.lineno or 1, "not valid Python")
        return
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                tree.fail(path, node.lineno, f"{node.name} has {length} lines, over the limit of "
                                             f"{FUNCTION_LINES_MAX}")


def check_lengths(tree, path):
    lines = tree.text(path).split("\n")
    count = len(lines) - (lines[-1] == "")
    if count > FILE_LINES_MAX:
        tree.fail(path, count, f"{count} lines, over the limit of {FILE_LINES_MAX}")
    elif count > FILE_LINES_WARN:
        tree.warn(path, count, f"{count} lines, over {FILE_LINES_WARN}")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            tree.fail(path, number, f"{len(line)} columns, over the limit of {COLUMNS_MAX}")


def check_words(tree, path):
    for number, line in enumerate(tree.text(path).split("\n"), 1):
        for word, what in FORBIDDEN_WORDS:
            if c_text.has_word(line, word):
                tree.fail(path, number, f"{word} is {what}; do it or file it")
        for place in FORBIDDEN_PATHS:
            if place in line:
                tree.fail(path, number, f"{place} is a path of one machine")


def check_names(tree):
    owners = {}
    for path in tree.paths:
        name = path.split("/")[-1]
        if name in REPEATED_NAMES:
            continue
        if name in owners:
            tree.fail(path, 1, f"the file name {name} is taken by {owners[name]}")
        owners.setdefault(name, path)


def may_include(tree, path, target):
    if target.endswith("_internal.h") and path.split("/")[0] != target.split("/")[0]:
        return False
    room = tables.room_of(tree.rooms, path)
    other = tables.room_of(tree.rooms, target)
    return room == other or tables.allows(tree.rooms.get(room, []), target)


def check_tags(tree):
    """No file of the product defines a type that a header it may include defines as well; the tests
    include everything and may call theirs as they like."""
    owners = {}
    for path in tree.paths:
        if suffix_of(path) in C_SUFFIXES and not path.startswith("tests/"):
            for line, tag in c_text.tags(c_text.strip(tree.text(path))):
                owners.setdefault(tag, []).append((path, line))
    for tag in sorted(owners.keys() - MADE_SEVERAL_TIMES):
        headers = [path for path, _ in owners[tag] if path.endswith(".h")]
        for path, line in owners[tag]:
            # Two headers may meet in a third file; the later one is named.
            others = [header for header in headers
                      if (header < path if path in headers else may_include(tree, path, header))]
            if others:
                tree.fail(path, line, f"the type {tag} is also defined in {others[0]}")


def check_tree(root):
    tree = Tree(root)
    check_rooms(tree)
    check_names(tree)
    check_tags(tree)
    for path in tree.paths:
        if suffix_of(path) in C_SUFFIXES:
            check_c(tree, path)
        elif suffix_of(path) == ".py":
            check_python(tree, path)
        if is_code(tree, path):
            check_lengths(tree, path)
        if is_text(tree, path):
            check_words(tree, path)
    return tree


def check_format(root):
    """Names the C files that clang-format would change."""
    if not shutil.which("clang-format"):
        print("clang-format is not installed; the format is not checked")
        return SKIPPED
    tree = Tree(root)
    wrong = 0
    for path in tree.paths:
        if suffix_of(path) not in {".c", ".h", ".cu", ".cuh"}:
            continue
        result = subprocess.run(["clang-format", "--dry-run", "-Werror", tree.root / path],
                                capture_output=True, check=False)
        if result.returncode != 0:
            print(f"{path}:1: not as clang-format -i leaves it")
            wrong += 1
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description="Checks the tree against its own rules.")
    parser.add_argument("root", nargs="?",
                        default=pathlib.Path(__file__).resolve().parent.parent.parent)
    parser.add_argument("--format", action="store_true", help="check the format of C files only")
    arguments = parser.parse_args()
    if arguments.format:
        return check_format(arguments.root)
    tree = check_tree(arguments.root)
    for path, line, sentence in tree.warnings:
        print(f"warning: {path}:{line}: {sentence}", file=sys.stderr)
    for path, line, sentence in sorted(tree.violations):
        print(f"{path}:{line}: {sentence}")
    print(f"{len(tree.paths)} files, {len(tree.violations)} violations")
    return 1 if tree.violations else 0


if __name__ == "__main__":
    sys.exit(main())
