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
SNIPPETS = r"""
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% for i in l %}{% if loop.first %}{% set y = 9 %}{% endif %}{{ y }}{% endfor %}{{ y }}
{% set ns = namespace(a=1, b='c') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}
{% set ns = namespace() %}{{ ns.nothing }}{{ ns.nothing is defined }}
{% set ns.a = 1 %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d.items }}
{% for k, v in d | dictsort(reverse=true) %}{{ k }};{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% else %}none{% endfor %}
{% for i in k %}x{% else %}none{{ loop is defined }}{% endfor %}
{% for i in w %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.revindex }}{{ loop.last }}|{% endfor %}
{% for i in w %}{{ loop.cycle('o', 'e') }}{{ loop.changed(i | lower) }}{% endfor %}
{% for i in w %}{% if i == 'a' %}{% break %}{% endif %}{% if i == 'A' %}{% continue %}{% endif %}{{ i }}{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a * b }} {% endfor %}{% for a, b in [[1]] %}{% endfor %}
{% for x in [[1, [2]], [3]] recursive %}({{ loop.depth }}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}){% endfor %}
{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1, a=0) }}{{ f() }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, x=2) }}
{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}
{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ n }}{% endcall %}
{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}-{{ b }}{% endcall %}
{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f() %}{{ late }}{% endmacro %}{% set late = 3 %}{{ f() }}{{ f.name }}{{ f.arguments }}
{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}
{% filter upper | replace('A', '-') %}abc{{ s }}{% endfilter %}
{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a }}
{% raw %}{{ x }} {% if %}{% endraw %}{{ n }}
{%- raw -%} {{ x }} {%- endraw -%} after
a {# comment #} b{#- c -#} d {% generation %}x{% endgeneration %}
{{ 1 if n }}{{ 1 if z }}{{ 'a' if z else 'b' if no else 'c' }}{{ (1 if z).x }}
{{ missing }}{{ missing.x }}
{{ missing is defined }}{{ missing is none }}{{ missing == other }}{{ missing or 'x' }}{{ not missing }}
{{ missing + 1 }}
{{ missing ~ 1 }}{{ missing | default('d') }}{{ missing | length }}{{ missing | list }}{{ missing | upper }}
{{ d.a }}{{ d['a'] }}{{ d.nope }}{{ d.nope is defined }}{{ d.get('nope') }}{{ d.get('q', 5) }}{{ d.keys() | list }}
{{ d.nope.x }}
{{ nil.x }}{{ nil['y'] }}{{ n.x }}
{{ s[0] }}{{ s[-1] }}{{ s[99] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[::2] }}{{ s[-3:] }}{{ s[:-3] }}{{ s[5:1] }}
{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[5:] }}{{ l['a'] }}{{ (1, 2, 3)[1:] }}{{ l[::0] }}
{{ messages[1:] }}{{ messages[-1]['role'] }}{{ messages | last }}{{ messages[0].content[0] }}
{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % -3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ 2 ** 0.5 }}{{ -2 ** 2 }}
{{ 1.0 }}{{ 1e16 }}{{ 1e15 }}{{ 0.1 + 0.2 }}{{ 1e-5 }}{{ 0.0001 }}{{ 1 / 3 }}{{ 100000000000000000000.0 }}{{ 5e-324 }}
{{ 1 / 0 }}
{{ 'a' * 3 }}{{ 3 * 'ab' }}{{ [1] * 2 }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ 'a' + 'b' }}{{ 'a' ~ 1 ~ nil ~ true }}
{{ 'a' + 1 }}
{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 1 == 1.0 == true }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 1 != 2 }}
{{ 1 < 'a' }}
{{ 'a' in 'abc' }}{{ 1 in l }}{{ 9 not in l }}{{ 'a' in d }}{{ not 1 in l }}{{ 'x' in missing }}
{{ 1 in 5 }}
{{ true and 1 }}{{ 0 or 'x' }}{{ '' or [] or nil }}{{ not not 1 }}{{ 1 and 0 or 2 }}
{{ [1, 'a', nil, true, 2.5, (1,), (), {}, {'a': "it's"}] }}{{ q }}{{ [q] }}
{{ mixed | tojson }}{{ d | tojson(indent=2) }}{{ q | tojson }}{{ q | tojson(ensure_ascii=true) }}{{ d | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}{{ [] | tojson(indent=1) }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ missing | tojson }}
{{ t | trim }}|{{ t.strip() }}|{{ t.rstrip('\n ') }}|{{ t.lstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ s.strip('Hd') }}
{{ t.split(',') }}{{ t.split() }}{{ t.split(',', 1) }}{{ 'a b  c d'.split(none, 2) }}{{ ' a b c '.rsplit(none, 1) }}{{ 'a.b.c'.rsplit('.', 1) }}{{ 'abc'.split('') }}
{{ 'abc'.startswith('a') }}{{ 'abc'.startswith(('x', 'ab')) }}{{ 'abc'.endswith('bc') }}{{ 'abc'.endswith(()) }}{{ 'abc'.startswith('b', 1) }}
{{ s.upper() }}{{ s.lower() }}{{ s.title() }}{{ 'hELLO wORLD'.capitalize() }}{{ s.swapcase() }}{{ 'straße'.upper() }}{{ s | title }}{{ "it's a-b (c)" | title }}{{ "it's".title() }}
{{ s.find('o') }}{{ s.find('zz') }}{{ s.rfind('l') }}{{ s.count('l') }}{{ s.index('W') }}{{ 'aaa'.count('aa') }}{{ s.count('') }}
{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ 'abc'.replace('', '-') }}{{ s | replace('l', '1', 2) }}{{ 'abc' | replace('', '-') }}
{{ 'a\nb\r\nc\n'.splitlines() }}{{ 'a\nb'.splitlines(true) }}{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('x') }}
{{ ','.join(w) }}{{ w | join(', ') }}{{ r | join('-', attribute='n') }}{{ mixed | join }}{{ ','.join(l) }}
{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'A'.isupper() }}{{ 'a'.islower() }}{{ ''.isdigit() }}{{ 'a1'.isalpha() }}
{{ 'a'.center(5, '*') }}{{ 'ab'.center(5) }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '0') }}{{ '-5'.zfill(4) }}{{ 'x' | center(6) }}|
{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('bc') }}{{ '%s-%d-%5.2f-%x-%r' % ('a', 5, 2.345, 255, 'q') }}{{ '%(a)s' % d }}{{ '{} {1}'.format(1) }}
{{ '{} {}'.format(1, 'b') }}{{ '{1}{0}'.format(1, 2) }}{{ '{x}'.format(x=3) }}{{ '{{}}'.format() }}{{ '%s' % missing }}{{ '%05d|%-5s|%+d' % (42, 'a', 1) }}{{ '%d' % 'a' }}
{{ w | sort }}{{ w | sort(case_sensitive=true) }}{{ l | sort(reverse=true) }}{{ r | sort(attribute='v') | map(attribute='n') | list }}{{ r | sort(attribute='v,n') | map(attribute='n') | join }}
{{ mixed | sort }}
{{ w | unique | list }}{{ r | unique(attribute='v') | map(attribute='n') | list }}{{ r | groupby('v') }}
{{ r | map(attribute='u.p') | list }}{{ r | map(attribute='q', default='z') | list }}{{ w | map('upper') | list }}{{ w | map('replace', 'a', 'Z') | list }}{{ w | map('nope') | list }}
{{ r | selectattr('v', 'equalto', 2) | list | length }}{{ r | rejectattr('u') | map(attribute='n') | list }}{{ r | selectattr('u', 'defined') | list | length }}{{ l | select('odd') | list }}{{ mixed | reject('none') | list }}{{ mixed | select | list }}
{{ r | selectattr('v', 'gt', 1) | length }}
{{ l | sum }}{{ r | sum(attribute='v') }}{{ l | min }}{{ l | max }}{{ w | min }}{{ w | max(case_sensitive=true) }}{{ k | max }}{{ r | max(attribute='v') }}{{ l | sum(start=10) }}
{{ l | first }}{{ l | last }}{{ k | first }}{{ s | first }}{{ d | first }}{{ l | reverse | list }}{{ s | reverse }}{{ l | reverse | first }}
{{ l | batch(2) | list }}{{ l | batch(2, 'x') | list }}{{ l | slice(2) | list }}{{ l | slice(2, 'f') | list }}
{{ '3' | int + 1 }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ '2.7' | int }}{{ '0x1f' | int(0, 16) }}{{ 2.9 | int }}{{ '1.5' | float }}{{ 'x' | float }}{{ nil | int }}{{ ' 4 ' | int }}{{ '1_0' | int }}
{{ -3 | abs }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.345 | round(2) }}{{ 2.1 | round(0, 'ceil') }}{{ 2.19 | round(1, 'floor') }}{{ 3 | round }}{{ 1234 | round(-2) }}{{ 42.55 | round(1) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(1, blank=true) }}|{{ 'a\nb' | indent('--') }}|{{ 'a\n' | indent }}|
{{ q | e }}{{ '<' | safe + '<' }}{{ '<' + ('>' | safe) }}{{ ('<' | e) ~ '<' }}{{ '<' | e | e }}{{ '<b>' | forceescape }}{{ 'a b/c?é' | urlencode }}
{{ 'one two  three' | wordcount }}{{ 'abcdefghij klm' | truncate(8) }}|{{ 'abcdefghij klm' | truncate(8, true) }}|{{ 'ab' | truncate(1, leeway=0, end='') }}{{ 'x' | string | length }}{{ 5 | string + '1' }}
{{ s is string }}{{ n is number }}{{ f is float }}{{ n is integer }}{{ yes is boolean }}{{ yes is integer }}{{ d is mapping }}{{ l is sequence }}{{ s is iterable }}{{ d is iterable }}{{ n is iterable }}{{ nil is none }}{{ missing is sequence }}{{ d is sequence }}
{{ n is odd }}{{ n is even }}{{ 9 is divisibleby 3 }}{{ 'a' is in 'abc' }}{{ n is eq 7 }}{{ n is gt 6 }}{{ n is not le(7) }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ range is callable }}{{ yes is true }}{{ 1 is true }}{{ nil is sameas none }}
{{ range(3) | list }}{{ range(5, 1, -2) | list }}{{ range(0) | list }}{{ range(3) }}{{ range(2, 9, 3) }}{{ range(3)[1] }}{{ range(3) | length }}
{{ range(10 ** 9) }}
{{ dict(a=1, b=2) }}{{ dict([('x', 1)]) }}{{ dict(d, z=0) | length }}{{ cycler('a', 'b').next() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}
{{ l.append(1) }}
{{ d.update({'x': 1}) }}
{{ d.pop('a') }}
{{ l.append is defined }}{{ l.index(1) }}{{ l.count(3) }}{{ d.copy() == d }}{{ l.copy() }}
{{ raise_exception('no ' ~ n) }}
{{ strftime_now('%Y-%m-%d %B %d %H:%M') }}{{ 'a' 'b' "c" }}{{ 'a\x41\u00e9\n\t\\\'\101\q' }}{{ "\N" }}
{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1_000 }}{{ 1e3 }}{{ 1.5e-3 }}
{{ 007 }}
{{ (1, 2) }}{{ 1, 2 }}{{ () }}{{ (1,) }}{{ [1, ] }}{{ {'a': 1, } }}{{ {} }}
{{ {'a': 1}.a }}{{ {'a': {'b': 2}}['a']['b'] }}{{ {1: 'x'}[1] }}{{ [1, 2].0 }}{{ l.0 }}
{{ n|string|length }}{{ -n|abs }}{{ (l | length) * 2 }}{{ l | length * 2 }}{{ not l | length }}{{ s | length > 3 and n }}
{{ l | join(',') if l else 'none' }}{{ n is defined and n is number }}{{ n if n is defined else 'u' }}
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if missing %}x{% elif l %}y{% endif %}
{% if l and not k %}x{% endif %}{% if d.a == 1 or missing.x %}y{% endif %}{% if 'b' in d %}{{ d['b'] }}{% endif %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = (1, 2) %}{{ c }}{% set x = 1, 2 %}{{ x }}{% set (p, q2) = [5, 6] %}{{ q2 }}
{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{{ m['role'] | upper + ': ' + m['content'] | trim }}{% endfor %}
{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}{{ messages | map(attribute='role') }}
{{ d | items | list }}{{ missing | items | list }}{{ n | items | list }}
{{ d.items() | list | first | last }}{{ d.values() | list }}{{ d.items()[0] }}{{ d.keys() | length }}
{{ x }}{% if false %}{{ 1 | nope }}{% endif %}{% if false %}{{ 1 is nope }}{% endif %}ok
{{ s | default }}{{ e | default('x', true) }}{{ nil | default('n') }}{{ nil | d('n', true) }}{{ missing.x | default('u') }}
{{ [1, [2, [3]]] }}{{ [[]] == [[]] }}{{ {'a': [1]} == {'a': [1]} }}{{ (1, 2) == [1, 2] }}{{ nil == false }}{{ 1 == true }}{{ '1' == 1 }}
{{ f | int }}{{ g }}{{ f * 2 }}{{ n + f }}{{ 1e308 * 10 }}{{ -1e308 * 10 }}{{ yes + yes }}{{ -yes }}{{ +n }}
{% for c in s %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in n %}{% endfor %}
{%- if n -%}  a  {%- endif -%}  b
""".strip("\n").split("\n")

SPACED = [
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n", "  {%+ if true %}x{% endif +%}\ny", "a {{ 1 }}\n",
    "x\n\n", "{% if true %}\n\n  y{% endif %}\n z", "a\r\nb\rc{{ '\r\n' }}", "\t{# c #}\nx",
    "{{- 1 -}}  \n {{- 2 }}\n {#- c +#}\n x", "  {{ 1 }}  {% set a = 1 %}  \n  {{ a }}",
    "{% for i in [1, 2] %}\n  {{ i }}\n{% endfor %}\nend", "{%- for i in l -%}\n {{ i }}\n{%- endfor %}",
    "{{ '{%' }}{{ \"}}\" }}{{ {'a': {'b': 1}}}}", "{% raw %}\n a {% endraw %}\n b", "{{ 1 }}\n\n\n",
    "{% set x = 1 -%}\n\n  a\n{%- set y %}\n b\n{% endset %}\n[{{ y }}]", "{%+ set a = 1 %}\n b",
    "{{", "{% if", "{% if true %}", "{{ 1 }", "{# a", "{% endif %}", "{{ 'a }}", "{{ 1 + }}", "{{ ) }}",
    "{{ (1 }}", "{% for x %}{% endfor %}", "{% set = 1 %}", "{{ a b }}", "{% macro %}{% endmacro %}",
    "{{ 1 | }}", "{{ 1 is }}", "{% break %}", "{% unknown %}", "{{ a. }}", "{{ a[ }}", "{{ {1 2} }}",
    "{{ f(a=1, 2) }}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ `a` }}", "{% else %}", "{{ }}",
]

ATOMS = ["s", "t", "e", "q", "n", "m", "z", "f", "g", "yes", "no", "nil", "l", "w", "k", "d", "o",
         "r", "missing", "mixed", "1", "2", "-1", "0.5", "'a'", "','", "''", "[1, 'b']", "{'a': 1}",
         "d.c", "messages[0]", "messages", "(1, 'x')", "d.a", "r[0].n", "none", "true"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
          "and", "or"]
FILTERS = ["length", "first", "last", "list", "join", "join(',')", "upper", "lower", "trim", "title",
           "string", "int", "float", "abs", "round", "sort", "unique | list", "reverse | list", "sum",
           "min", "max", "tojson", "tojson(indent=1)", "default('d')", "d('x', true)", "capitalize",
           "replace('a', 'bb')", "items | list", "dictsort", "map('upper') | list", "select | list",
           "map(attribute='a') | list", "selectattr('n') | list", "batch(2) | list", "e",
           "indent", "wordcount", "reject('none') | list", "count", "map('length') | list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping",
         "iterable", "sequence", "odd", "even", "true", "false", "in l", "eq 1", "lower", "upper",
         "divisibleby 2", "gt 0"]
METHODS = [".split()", ".split(',')", ".strip()", ".upper()", ".lower()", ".title()", ".items() | list",
           ".keys() | list", ".get('a')", ".startswith('a')", ".endswith(' ')", ".replace('l', '')",
           ".find('l')", ".count('l')", ".a", ".n", "['a']", "[0]", "[-1]", "[1:]", "[:-1]", "[::-1]",
           ".x.y", "[n]", ".isdigit()", ".join(w)", ".capitalize()", ".splitlines()", ".index(1)"]


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
                                         "<bound method", "<class ", "<generator",
                                         "Markup("))


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
