"""Holds structured output against Python: answers written through masks are validated by jsonschema
(where it is installed) and matched by re, and texts fit exactly the expressions that re says.

    compare_grammars.py GRAMMAR_FILTER [COUNT [SEED]]
    compare_grammars.py GRAMMAR_FILTER --suite FOLDER

COUNT random schemas and as many expressions (300 by default, 20,000 with BATON_TEST_LONG=1). The
second form reads cases of the JSON Schema Test Suite (FOLDER/*.json): no document that a schema
rejects may fit it, and what is written must be valid. Exits with 77 where jsonschema is missing,
after the expressions.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    jsonschema = None

SKIPPED = 77
SHORT_COUNT = 300
LONG_COUNT = 20_000
SCHEMA, OBJECT, REGEX, CHOICE, RULES, STRUCTURE = range(1, 7)
NAMES = ["a", "b", "name", "né", 'q"t', "x y", "id"]
WORDS = ["", "a", "b", "red", "re d", "né", 'q"', "a\\b", "ab12", "line\nend"]
REFUSED = {"UNSUPPORTED", "LIMIT"}


class Filter:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request, ensure_ascii=False) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the filter ended at {json.dumps(request)}")
        return json.loads(line)


def bounds(rng, low, high):
    first, second = sorted([rng.randint(low, high), rng.randint(low, high)])
    return first, second


def number_schema(rng):
    schema = {"type": rng.choice(["integer", "number"])}
    low, high = bounds(rng, -1200, 1200)
    scale = rng.choice([1, 1, 0.5, 0.01, 1e-4]) if schema["type"] == "number" else 1
    if rng.random() < 0.6:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low * scale
    if rng.random() < 0.6:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = high * scale
    return schema


def string_schema(rng):
    schema = {"type": "string"}
    if rng.random() < 0.3:
        schema["pattern"] = rng.choice(["^[a-z]{2,5}$", "a", "^(x|yy)+z?$", "[0-9]$", "^né", '"',
                                        "^[^a-y]*$", "\\d\\s", "^\\S+@\\w+$", "^.{1,3}$"])
    elif rng.random() < 0.3:
        schema["format"] = rng.choice(["date", "date-time", "uuid", "ipv4", "ipv6", "email", "time",
                                       "hostname", "uri", "password"])
    if rng.random() < 0.4 and "format" not in schema:
        schema["minLength"], schema["maxLength"] = bounds(rng, 0, 70)
    return schema


def any_schema(rng, depth, names):
    roll = rng.random()
    if roll < 0.12:
        return {"enum": rng.sample([1, 2.5, None, True, "a", "é\n", [1, {"b": []}], {}, -7], 3)}
    if roll < 0.16:
        return {"const": rng.choice([1, "x", None, [], {"a": [1.5]}])}
    if roll < 0.30 or depth == 0:
        return number_schema(rng) if rng.random() < 0.5 else string_schema(rng)
    if roll < 0.36:
        return {"type": rng.sample(["null", "boolean", "integer", "string", "array", "object"], 2)}
    if roll < 0.42:
        return rng.choice([True, {}, {"type": "boolean"}, {"title": "x", "default": 3}])
    if roll < 0.50:
        return {rng.choice(["anyOf", "oneOf"]): [any_schema(rng, depth - 1, names)
                                                 for _ in range(rng.randint(1, 3))]}
    if roll < 0.56:
        return {"allOf": [any_schema(rng, depth - 1, names), {"type": ["string", "integer",
                                                                       "object", "array"]}]}
    if roll < 0.62 and names:
        return {"$ref": "#/$defs/" + rng.choice(names)}
    if roll < 0.78:
        return array_schema(rng, depth, names)
    return object_schema(rng, depth, names)


def array_schema(rng, depth, names):
    schema = {"type": "array"}
    if rng.random() < 0.15:
        schema["uniqueItems"] = True
        schema["items"] = {"enum": [rng.choice([1, 1.0, True, "1", "12", 12, [1], [True], {}, None])
                                    for _ in range(rng.randint(1, 8))]}
    elif rng.random() < 0.7:
        schema["items"] = any_schema(rng, depth - 1, names)
    if rng.random() < 0.3:
        schema["prefixItems"] = [any_schema(rng, depth - 1, names)
                                 for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        schema["minItems"], schema["maxItems"] = bounds(rng, 0, 5)
    return schema


def object_schema(rng, depth, names):
    members = rng.sample(NAMES, rng.randint(0, 4))
    schema = {"type": "object",
              "properties": {name: any_schema(rng, depth - 1, names) for name in members}}
    schema["required"] = rng.sample(members, rng.randint(0, len(members)))
    if rng.random() < 0.4:
        schema["additionalProperties"] = rng.choice([False, True, {"type": "integer"}])
    if rng.random() < 0.2:
        schema["patternProperties"] = {"^x": {"type": "string"}}
    if rng.random() < 0.1:
        schema["minProperties"] = rng.randint(0, 2)
    if rng.random() < 0.1:
        del schema["properties"]
        schema["maxProperties"] = rng.randint(0, 4)
    return schema


def random_schema(rng):
    names = ["one", "two"][:rng.randint(0, 2)]
    schema = any_schema(rng, 3, names)
    if isinstance(schema, dict) and names:
        schema = dict(schema)
        schema["$defs"] = {name: any_schema(rng, 2, names) for name in names}
    return schema


def documents_check(schema, got, counts, draft=None):
    validator = jsonschema.validators.validator_for(
        schema, {"draft7": jsonschema.Draft7Validator, "draft6": jsonschema.Draft6Validator,
                 "draft4": jsonschema.Draft4Validator,
                 "draft2019-09": jsonschema.Draft201909Validator}.get(
                     draft, jsonschema.Draft202012Validator))
    checker = validator(schema, format_checker=validator.FORMAT_CHECKER)
    for text, whole in zip(got["answers"], got["whole"]):
        counts["documents"] += 1
        if not whole:
            sys.exit(f"not whole: {text!r} for {json.dumps(schema)}")
        try:
            value = json.loads(text, strict=True)
        except ValueError as error:
            sys.exit(f"no JSON: {text!r} ({error}) for {json.dumps(schema)}")
        problem = next(iter(checker.iter_errors(value)), None)
        if problem is not None:
            sys.exit(f"not valid: {text!r} ({problem.message}) for {json.dumps(schema)}")


def schemas_compare(work, count, rng):
    counts = {"written": 0, "refused": 0, "unmet": 0, "documents": 0}
    for _ in range(count):
        schema = random_schema(rng)
        got = work.ask(kind=SCHEMA, source=json.dumps(schema), walks=6, budget=60,
                       seed=rng.randrange(1 << 40))
        if "error" in got:
            counts["refused" if got["status"] in REFUSED else "unmet"] += 1
            if not got["error"].startswith("#"):
                sys.exit(f"no place in {got['error']!r} for {json.dumps(schema)}")
            continue
        counts["written"] += 1
        documents_check(schema, got, counts)
    if counts["written"] * 3 < count:
        sys.exit(f"too few schemas were written: {counts}")
    print("schemas:", counts)


def random_regex(rng, depth):
    roll = rng.random()
    if depth == 0 or roll < 0.35:
        return rng.choice(["a", "b", "c", "é", "[a-c]", "[^a]", "\\d", "\\w", "\\s", ".", "\\.",
                           "[\\d_-]", "[]x]", "\\x41", "\\u00e9", "ab", "\\n", "[^\\W\\d]"])
    if roll < 0.55:
        return "".join(random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if roll < 0.7:
        return "(" + rng.choice(["", "?:", "?P<n%d>" % rng.randrange(1 << 30)]) + "|".join(
            random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    repeated = "(?:" + random_regex(rng, depth - 1) + ")"
    return repeated + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "+?"])


def regexes_compare(work, count, rng):
    written = 0
    for _ in range(count):
        source = random_regex(rng, 3)
        if rng.random() < 0.2:
            source = "^" + source + "$" if "|" not in source else source
        compiled = re.compile(source, re.ASCII)
        texts = ["".join(rng.choice("abcé1_ .A-x]\n") for _ in range(rng.randint(0, 6)))
                 for _ in range(30)]
        got = work.ask(kind=REGEX, source=source, walks=6, budget=20, texts=texts,
                       seed=rng.randrange(1 << 40))
        if "error" in got:
            if got["status"] not in REFUSED:
                sys.exit(f"{got['error']!r} for {source!r}")
            continue
        written += 1
        for text, whole in zip(got["answers"], got["whole"]):
            if not whole or compiled.fullmatch(text) is None:
                sys.exit(f"{text!r} (whole {whole}) does not match {source!r}")
        for text, fits in zip(texts, got["fits"]):
            if fits != (compiled.fullmatch(text) is not None):
                sys.exit(f"{text!r} fits {source!r}: {fits}")
    if written * 3 < count:
        sys.exit("too few expressions were written")
    print("expressions:", written)


def suite_compare(work, folder):
    counts = {"written": 0, "refused": 0, "unmet": 0, "documents": 0}
    valid = fitting = wrong = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            tests = group["tests"]
            texts = [json.dumps(test["data"], ensure_ascii=False) for test in tests]
            got = work.ask(kind=SCHEMA, source=json.dumps(group["schema"]), walks=6, budget=40,
                           seed=1, texts=texts)
            if "error" in got:
                counts["refused" if got["status"] in REFUSED else "unmet"] += 1
                if got["status"] not in REFUSED and any(test["valid"] for test in tests):
                    print(f"{path.name}: {group['description']}: {got['error']}")
                    wrong += 1
                continue
            counts["written"] += 1
            for test, fits in zip(tests, got["fits"]):
                valid += test["valid"]
                fitting += fits and test["valid"]
                if fits and not test["valid"]:
                    print(f"{path.name}: {group['description']}: {test['description']}: accepted")
                    wrong += 1
            try:
                documents_check(group["schema"], got, counts, pathlib.Path(folder).name)
            except (SystemExit, jsonschema.exceptions._WrappedReferencingError) as error:
                print(f"{path.name}: {group['description']}: {error}")
                wrong += 1
    print("suite:", counts, "valid documents that fit:", fitting, "of", valid, "wrong:", wrong)
    return wrong


def main():
    work = Filter(sys.argv[1])
    if len(sys.argv) > 3 and sys.argv[2] == "--suite":
        return 1 if suite_compare(work, sys.argv[3]) else 0
    long = os.environ.get("BATON_TEST_LONG") == "1"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else LONG_COUNT if long else SHORT_COUNT
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    regexes_compare(work, count, rng)
    if jsonschema is None:
        print("jsonschema is not installed")
        return SKIPPED
    schemas_compare(work, count, rng)
    return 0


if __name__ == "__main__":
    sys.exit(main())
