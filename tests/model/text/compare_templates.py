"""Compares our templates with jinja2 over snippets and random expressions.

    compare_templates.py TEMPLATE_FILTER [COUNT [SEED]]

The same text, or an error where the reference has one. Exits with 77 where jinja2 is not installed.
"""

import copy
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import warnings

SKIPPED = 77
COUNT = 3_000
LONG_COUNT = 200_000
BATCH = 2_000
SHOWN = 10
NOW = 1_796_040_000

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
LISTED = pathlib.Path(__file__).resolve().parents[3] / "ops" / "python.txt"
PACKAGES = "python-" + hashlib.sha256(LISTED.read_bytes()).hexdigest()[:12]  # as ops/lib.sh has it
sys.path.append(os.environ.get("BATON_PYTHON_PACKAGES") or str(CACHE / "baton" / PACKAGES))

try:
    import template_reference
except ImportError:
    print("the jinja2 package of ops/python.txt is not installed")
    sys.exit(SKIPPED)

VARIABLES = {
    "s": "Hello Wörld", "t": " a,b,,c \n", "e": "", "q": "it's \"q\" \\ <b>&\t\u00e9\U0001f642",
    "n": 7, "m": -3, "z": 0, "f": 2.5, "g": -0.1, "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "w": ["b", "A", "a", "C"], "k": [], "mixed": [1, "a", None, 2.0, True],
    "d": {"a": 1, "b": "x", "items": [1], "c": {"d": [1, 2]}}, "o": {},
    "r": [{"n": "x", "v": 2, "u": {"p": 1}}, {"n": "y", "v": 1}, {"n": "X", "v": 2}],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
}

# What chat templates use, and the corners of each.
SNIPPETS = (pathlib.Path(__file__).with_name("template_snippets.txt")
            .read_text(encoding="utf-8").split("\n")[:-1])

SPACED = [
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n", "  {%+ if true %}x{% endif +%}\ny", "a {{ 1 }}\n",
    "x\n\n", "{% if true %}\n\n  y{% endif %}\n z", "a\r\nb\rc{{ '\r\n' }}", "\t{# c #}\nx",
    "{{- 1 -}}  \n {{- 2 }}\n {#- c +#}\n x", "  {{ 1 }}  {% set a = 1 %}  \n  {{ a }}",
    "{% for i in [1, 2] %}\n  {{ i }}\n{% endfor %}\nend",
    "{%- for i in l -%}\n {{ i }}\n{%- endfor %}", "{{ '{%' }}{{ \"}}\" }}{{ {'a': {'b': 1}}}}",
    "{% raw %}\n a {% endraw %}\n b", "{{ 1 }}\n\n\n",
    "{% set x = 1 -%}\n\n  a\n{%- set y %}\n b\n{% endset %}\n[{{ y }}]", "{%+ set a = 1 %}\n b",
    "{{", "{% if", "{% if true %}", "{{ 1 }", "{# a", "{% endif %}", "{{ 'a }}", "{{ 1 + }}",
    "{{ ) }}", "{{ (1 }}", "{% for x %}{% endfor %}", "{% set = 1 %}", "{{ a b }}",
    "{% macro %}{% endmacro %}", "{{ 1 | }}", "{{ 1 is }}", "{% break %}", "{% unknown %}",
    "{{ a. }}", "{{ a[ }}", "{{ {1 2} }}", "{{ f(a=1, 2) }}", "{% macro f(a=1, b) %}{% endmacro %}",
    "{{ `a` }}", "{% else %}", "{{ }}",
]

ATOMS = [
    "s", "t", "e", "q", "n", "m", "z", "f", "g", "yes", "no", "nil", "l", "w", "k", "d", "o", "r",
    "missing", "mixed", "1", "2", "-1", "0.5", "'a'", "','", "''", "[1, 'b']", "{'a': 1}", "d.c",
    "messages[0]", "messages", "(1, 'x')", "d.a", "r[0].n", "none", "true",
]
BINARY = [
    "+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and",
    "or",
]
FILTERS = [
    "length", "first", "last", "list", "join", "join(',')", "upper", "lower", "trim", "title",
    "string", "int", "float", "abs", "round", "sort", "unique | list", "reverse | list", "sum",
    "min", "max", "tojson", "tojson(indent=1)", "default('d')", "d('x', true)", "capitalize",
    "replace('a', 'bb')", "items | list", "dictsort", "map('upper') | list", "select | list",
    "map(attribute='a') | list", "selectattr('n') | list", "batch(2) | list", "e", "indent",
    "wordcount", "reject('none') | list", "count", "map('length') | list",
]
MARKUP = re.compile(r"m(?:a|bb)rkup\(", re.IGNORECASE)  # as those of FILTERS leave it
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping",
    "iterable", "sequence", "odd", "even", "true", "false", "in l", "eq 1", "lower", "upper",
    "divisibleby 2", "gt 0",
]
METHODS = [
    ".split()", ".split(',')", ".strip()", ".upper()", ".lower()", ".title()", ".items() | list",
    ".keys() | list", ".get('a')", ".startswith('a')", ".endswith(' ')", ".replace('l', '')",
    ".find('l')", ".count('l')", ".a", ".n", "['a']", "[0]", "[-1]", "[1:]", "[:-1]", "[::-1]",
    ".x.y", "[n]", ".isdigit()", ".join(w)", ".capitalize()", ".splitlines()", ".index(1)",
]


def expression(chance, depth):
    if depth == 0:
        return chance.choice(ATOMS)
    inner = expression(chance, depth - 1)
    kind = chance.randrange(7)
    if kind == 0:
        return f"({inner} {chance.choice(BINARY)} {expression(chance, depth - 1)})"
    if kind in (1, 2):
        return f"({inner}) | {chance.choice(FILTERS)}"
    if kind == 3:
        return f"({inner} is {chance.choice(['', 'not '])}{chance.choice(TESTS)})"
    if kind in (4, 5):
        return f"({inner}){chance.choice(METHODS)}"
    return f"({inner} if {expression(chance, depth - 1)} else {chance.choice(ATOMS)})"


def random_template(chance):
    shown = expression(chance, chance.randint(1, 4))
    kind = chance.randrange(5)
    if kind == 0:
        return "{% for x in " + shown + " %}[{{ x }}{{ loop.index }}]{% else %}-{% endfor %}"
    if kind == 1:
        return "{% set v = " + shown + " %}{% if v %}{{ v }}{% else %}-{% endif %}"
    return "{{ " + shown + " }}"


def results(program, templates):
    lines = "".join(json.dumps({"template": template, "variables": VARIABLES, "now": NOW}) + "\n"
                    for template in templates)
    done = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def is_address(text):
    """What Python shows of functions, generators and views is no matter of templates."""
    return any(word in text for word in (" object at 0x", "built-in method", "<function", "dict_",
                                         "<bound method", "<class ", "<generator")
               ) or MARKUP.search(text) is not None


def differences(program, env, templates):
    found = 0
    for template, ours in zip(templates, results(program, templates), strict=True):
        wanted, error = template_reference.rendered(env, template, copy.deepcopy(VARIABLES))
        if wanted is not None and is_address(wanted):
            continue
        if error is not None and error.startswith("OverflowError") and "error" in ours:
            continue
        if (wanted is None and "error" in ours) or wanted == ours.get("text"):
            continue
        if "64 bits" in ours.get("error", ""):  # Python's integers have no end
            continue
        if wanted is not None and "can not be sliced" in ours.get("error", ""):
            continue  # jinja2 makes undefined of a sliced constant, an error of anything else
        found += 1
        if found <= SHOWN:
            print(f"template: {template!r}\n  wanted: {wanted!r} {error or ''}\n  ours:   {ours}")
    return found


def main():
    program = sys.argv[1]
    long = os.environ.get("BATON_TEST_LONG") == "1"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else LONG_COUNT if long else COUNT
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    warnings.simplefilter("ignore", SyntaxWarning)  # of the code that jinja2 makes
    env = template_reference.environment(NOW)
    found = differences(program, env, SNIPPETS + SPACED)
    chance = random.Random(seed)
    for start in range(0, count, BATCH):
        templates = [random_template(chance) for _ in range(min(BATCH, count - start))]
        found += differences(program, env, templates)
    print(f"{len(SNIPPETS) + len(SPACED)} snippets and {count} random templates, seed {seed}: "
          f"{found} differences")
    sys.exit(1 if found else 0)


main()
