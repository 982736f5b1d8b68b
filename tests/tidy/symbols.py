#!/usr/bin/env python3
"""Looks for functions and variables that two source files of the product both define. Its static
libraries share one name space, and where a program needs nothing else of a file, the linker takes
the other one's function without a word.

    tests/tidy/symbols.py NM LIST    LIST: a file that names the objects of the product, one a line
"""
import collections
import os.path
import pathlib
import subprocess
import sys

EVERY_PROGRAM_HAS = {"main"}


def source_of(path):
    """base/CMakeFiles/baton_base.dir/loop.c.o is made of base/loop.c, for all targets alike."""
    folder, _, rest = path.partition("/CMakeFiles/")
    name = rest.partition(".dir/")[2] or rest
    return os.path.relpath(f"{folder}/{name}")[:-len(".o")]


def definitions(text):
    """{name: the sources that define it}, from the words of nm -A -g --defined-only."""
    owners = collections.defaultdict(set)
    for line in text.splitlines():
        path, _, symbol = line.partition(":")
        name = symbol.split()[-1]
        if name not in EVERY_PROGRAM_HAS:
            owners[name].add(source_of(path))
    return owners


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    objects = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").split("\n")
    result = subprocess.run([sys.argv[1], "-A", "-g", "--defined-only",
                             *filter(None, objects)], capture_output=True, text=True, check=True)
    owners = definitions(result.stdout)
    doubled = {name: sources for name, sources in owners.items() if len(sources) > 1}
    for name, sources in sorted(doubled.items()):
        print(f"{name} is defined in {' and in '.join(sorted(sources))}")
    print(f"{len(owners)} names, {len(doubled)} defined twice")
    return 1 if doubled or not owners else 0


if __name__ == "__main__":
    sys.exit(main())
