#!/usr/bin/env python3
"""Builds a small tree that breaks every rule and looks whether tidy.py finds each breach, and a
clean one in which it must find none."""
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import c_text  # noqa: E402  (the path has to be set first)
import symbols  # noqa: E402
import tidy  # noqa: E402

MARK = "TO" "DO"
CLEAN = {
    "base/README.md": "# base\n",
    "base/log.h": "#include <stdint.h>\nint log_it(void);\nstruct level {\n    int a;\n};\n",
    "base/clock.c": "struct level *a;\nstruct link_kind {\n    int a;\n};\n",
    "base/random.c": "struct link_kind {\n    int b;\n};\n",
    "base/log.c": '#include "base/log.h"\n\nint log_it(void)\n{\n    return 0;\n}\n',
    "base/loop.c": "#include <event2/event.h>\nvoid *e(void)\n{\n    return event_base_new();\n}\n",
    "base/log_internal.h": "/* private */\n",
    "prefill_node/README.md": "# prefill\n",
    "prefill_node/chunk.c": '#include "base/log.h"\n#include "transfer/link.h"\n',
    "decode_node/README.md": "# decode\n",
    "decode_node/batch.h": "int batch;\n",
    "transfer/README.md": "# transfer\n",
    "transfer/link.h": "struct link_kind {\n    int c;\n};\n",
    "model/README.md": "# model\n",
    "model/model.c": '#include "model/net/forward.h"\n#include "model/text/text.h"\n',
    "model/text/text.h": "int text;\n",
    "model/net/forward.h": "int forward;\n",
    "router/README.md": "# router\n",
    "router/http.c": '#include "model/text/text.h"\n',
    "tests/README.md": "# tests\n",
    "tests/base/test_log.c": '#include <criterion/criterion.h>\n#include "base/log_internal.h"\n',
}


def long_function(lines):
    return "int f(int a)\n{\n" + "    a++;\n" * (lines - 4) + "    return a;\n}\n"


# (file, its text, the sentence that must be found in it)
BAD = [
    ("prefill_node/twin.c", '#include "decode_node/batch.h"\n', "prefill_node may not include"),
    ("base/upward.c", '#include "transfer/link.h"\n', "base may not include transfer/link.h"),
    ("router/weights.c", '#include "model/net/forward.h"\n', "router may not include"),
    ("model/text/upward.c", '#include "model/net/forward.h"\n', "model/text may not include"),
    ("router/peek.c", '#include "base/log_internal.h"\n', "is private to base"),
    ("tests/router/test_peek.c", '#include "base/log_internal.h"\n', "is private to base"),
    ("base/near.c", '#include "log.h"\n', "is not a path from the root"),
    ("router/sql.c", "#include <sqlite3.h>\n", "(sqlite) may not be included here"),
    ("router/event.c", "void *e(void)\n{\n    return event_base_new();\n}\n",
     "event_base_new belongs to libevent"),
    ("base/odd.c", "#include <boost.h>\n", "is in no row of tests/tidy/libraries.txt"),
    ("base/vector.c", "#include <immintrin.h>\n", "(intrinsics) may not be included here"),
    ("base/long_file.c", "int x;\n" * 801, "801 lines, over the limit of 800"),
    ("base/long_function.c", long_function(71), "f has 71 lines, over the limit of 70"),
    ("base/wide.c", "int " + "x" * 97 + ";\n", "102 columns, over the limit of 100"),
    ("base/tab.c", "int a;\n\tint b;\n", "a tab"),
    ("base/mark.c", f"/* {MARK}: later */\n", f"{MARK} is a comment mark"),
    ("base/place.c", '/* see /wo' 'rk/main */\n', "is a path of one machine"),
    ("base/script.py", "def f():\n" + "    a = 1\n" * 70, "f has 71 lines"),
    ("router/log.c", "int y;\n", "the file name log.c is taken by base/log.c"),
    ("base/level.c", "struct level {\n    int b;\n};\n",
     "the type level is also defined in base/log.h"),
    ("router/level.h", "enum level {\n    A,\n};\n",
     "the type level is also defined in base/log.h"),
    ("stray/thing.c", "int z;\n", "the folder stray is not in tests/tidy/rooms.txt"),
    ("ops/tool.c", "int w;\n", "the room ops has no README.md"),
    ("decode_node/README.md", "line\n" * 151, "151 lines, over the limit of 150"),
]


def write_tree(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (root / "tests/tidy").mkdir(parents=True, exist_ok=True)
    for table in ("rooms.txt", "libraries.txt"):
        (root / "tests/tidy" / table).write_bytes((HERE / table).read_bytes())


def found_in(files):
    with tempfile.TemporaryDirectory() as folder:
        write_tree(pathlib.Path(folder), files)
        tree = tidy.check_tree(folder)
    return tree


class TreeTest(unittest.TestCase):
    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(found_in(CLEAN).violations, [])

    def test_each_breach_is_found_and_nothing_else(self):
        for path, text, sentence in BAD:
            with self.subTest(path=path):
                violations = found_in({**CLEAN, path: text}).violations
                self.assertEqual(len(violations), 1, violations)
                self.assertIn(sentence, violations[0][2])

    def test_limits_themselves_are_allowed(self):
        fine = {"base/full.c": "int x;\n" * 800, "base/whole.c": long_function(70),
                "base/edge.c": "int " + "x" * 95 + ";\n", "router/README.md": "line\n" * 150}
        tree = found_in({**CLEAN, **fine})
        self.assertEqual(tree.violations, [])
        self.assertEqual([path for path, _, _ in tree.warnings], ["base/full.c"])

    def test_comments_and_strings_are_not_code(self):
        text = ('/* #include "decode_node/batch.h" and event_base_new() */\n'
                '// #include <sqlite3.h>\nconst char *s = "sqlite3_open(";\n')
        self.assertEqual(found_in({**CLEAN, "base/words.c": text}).violations, [])


class FunctionsTest(unittest.TestCase):
    def names(self, text):
        return [(name, last - first + 1) for name, first, last in
                c_text.functions(c_text.strip(text))]

    def test_only_functions_are_counted(self):
        text = """
struct s { int a; };
enum { A, B };
static const int t[] = { 1, 2 };
static const struct s u = { .a = (3) };
#define M(x) do { x; } while (0)
int f(void)
{
    if (1) { return '{'; }
    return "}"[0];
}
__attribute__((format(printf, 1, 2))) static void
g(const char *format, ...) __attribute__((cold))
{
}
Test(suite, name, .signal = 6)
{
}
typedef int (*callback)(void *);
struct s h(struct s (*k)(int)) { return k(1); }
"""
        self.assertEqual(self.names(text), [("f", 5), ("g", 3), ("Test", 3), ("h", 1)])

    def test_both_branches_of_a_conditional_may_open_a_brace(self):
        text = """
int f(int a)
{
#ifdef X
    if (a) {
#else
    if (!a) {
#endif
        a++;
    }
    return a;
}
int g(void)
{
    return 1;
}
"""
        self.assertEqual(self.names(text), [("f", 11), ("g", 4)])

    def test_extern_c_hides_nothing(self):
        text = 'extern "C" {\nint f(void)\n{\n    return 1;\n}\n}\n'
        self.assertEqual(self.names(text), [("f", 4)])

    def test_digit_separators_are_not_characters(self):
        self.assertEqual(self.names("int f(void)\n{\n    return 1'000;\n}\n"), [("f", 4)])


class SymbolsTest(unittest.TestCase):
    def test_a_source_in_two_targets_is_one_owner(self):
        owners = symbols.definitions(
            "base/CMakeFiles/b.dir/log.c.o:0000 T log_it\n"
            "base/CMakeFiles/other.dir/log.c.o:0000 T log_it\n"
            "router/CMakeFiles/r.dir/s.c.o:0010 D session_open\n"
            "ops/baton/CMakeFiles/baton.dir/run.c.o:0000 T session_open\n"
            "router/CMakeFiles/r.dir/m.c.o:0000 T main\nops/CMakeFiles/o.dir/m.c.o:0 T main\n")
        self.assertEqual(owners, {"log_it": {"base/log.c"},
                                  "session_open": {"router/s.c", "ops/baton/run.c"}})


if __name__ == "__main__":
    unittest.main()
