"""Answers that have to be something: whatever a random model would say, every one of them keeps to
its schema, expression, choice or rules, wherever it was written, streamed or not."""
import concurrent.futures
import itertools
import json
import pathlib
import re
import tempfile
import unittest

from cluster import Cluster, tiny_model
from processes import (BATON, DEADLINE_S, chat_text, is_sanitized, python_package, real_model, run,
                       stream_text, wait_for)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["glad", "sad", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object",
                        "properties": {"city": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"},
                                       "near": {"type": "boolean"}},
                        "required": ["city"], "additionalProperties": False}},
}
DATE = "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]"
CHOICES = ["yes", "no", "no way", "peut-être", "\U0001F3C3 \"run\""]
RULES = 'root ::= item (", " item){0,3} "."\nitem ::= [a-z]+ | "<" item ">"\n'


def check(schema, value, root=None):
    """Does it validate? For the keywords of the schemas above."""
    root = root or schema
    if "$ref" in schema:
        return check(root["$defs"][schema["$ref"].rpartition("/")[2]], value, root)
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        return (isinstance(value, dict) and set(schema["required"]) <= set(value)
                and all(name in schema["properties"]
                        and check(schema["properties"][name], member, root)
                        for name, member in value.items()))
    if kind == "array":
        return (isinstance(value, list) and len(value) <= schema["maxItems"]
                and all(check(schema["items"], item, root) for item in value))
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    if kind == "boolean":
        return isinstance(value, bool)
    return (isinstance(value, str) and schema.get("minLength", 0) <= len(value)
            and len(value) <= schema.get("maxLength", len(value))
            and re.search(schema.get("pattern", ""), value) is not None)


def follows_rules(text):
    item = r"(?:[a-z]+|<+[a-z]+>+)"
    return (re.fullmatch(rf"{item}(, {item}){{0,3}}\.", text) is not None
            and all(part.count("<") == part.count(">") for part in text[:-1].split(", ")))


# What is asked, as one field or another says it, and what the answer must be.
KINDS = {
    "schema": ({"response_format": {"type": "json_schema",
                                    "json_schema": {"name": "person", "schema": PERSON}}},
               lambda text: check(PERSON, json.loads(text))),
    "object": ({"response_format": {"type": "json_object"}},
               lambda text: isinstance(json.loads(text), dict)),
    "regex": ({"structured_outputs": {"regex": DATE}},
              lambda text: re.fullmatch(DATE, text) is not None),
    "choice": ({"guided_choice": CHOICES}, lambda text: text in CHOICES),
    "rules": ({"structured_outputs": {"grammar": RULES}}, follows_rules),
}
HOT = {"temperature": 1, "max_tokens": 200}


class StructuredCases:
    layout = {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tiny_model(context=2048), **cls.layout)
        cls.client = cls.cluster.client

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def choices(self, prompt="Tell me ", **fields):
        answer = self.client.complete(prompt, **{**HOT, **fields})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()["choices"]

    def assert_fits(self, kind, choice):
        self.assertEqual(choice["finish_reason"], "stop", choice)
        self.assertTrue(KINDS[kind][1](choice["text"]), choice)

    def test_every_answer_fits(self):
        for kind, (fields, _) in KINDS.items():
            for seed in range(4):
                with self.subTest(kind=kind, seed=seed):
                    for choice in self.choices(**fields, seed=seed):
                        self.assert_fits(kind, choice)

    def test_every_choice_fits(self):
        for kind, (fields, _) in KINDS.items():
            with self.subTest(kind=kind):
                choices = self.choices(**fields, seed=8, n=6)
                for choice in choices:
                    self.assert_fits(kind, choice)
                self.assertGreater(len({choice["text"] for choice in choices}), 1)

    def test_streamed_is_whole(self):
        for kind, (fields, fits) in KINDS.items():
            with self.subTest(kind=kind):
                whole, = self.choices(**fields, seed=3)
                self.assertEqual(stream_text(self.client.complete_stream(
                    "Tell me ", **HOT, **fields, seed=3)), whole["text"])
                text = chat_text(self.client.chat("Tell me", **HOT, **fields, seed=3))
                self.assertTrue(fits(text), text)
                self.assertEqual(stream_text(self.client.chat_stream(
                    "Tell me", **HOT, **fields, seed=3)), text)

    def test_greedy_and_with_what_moves_logits(self):
        for sampling in ({"temperature": 0}, {"temperature": 0, "repetition_penalty": 1.3},
                         {"temperature": 1, "top_k": 5, "seed": 1}, {"logit_bias": {"65": 100}},
                         {"bad_words": ["{"], "seed": 2}, {"ignore_eos": True, "seed": 3},
                         {"min_tokens": 150, "seed": 4}, {"logprobs": 2, "seed": 5}):
            with self.subTest(sampling=sampling):
                fields = {**HOT, **sampling}
                for kind in ("regex", "rules"):
                    choice, = self.choices(**{**KINDS[kind][0], **fields})
                    if "ignore_eos" in sampling or "min_tokens" in sampling:
                        # It goes on as far as it can, and is whole at its end.
                        self.assertTrue(KINDS[kind][1](choice["text"]), choice)
                    else:
                        self.assert_fits(kind, choice)

    def test_short_budgets_give_whole_documents(self):
        array = {"structured_outputs": {"json": {"type": "array", "items": {"type": "string"}}}}
        for max_tokens in (3, 4, 7, 20, 21, 22):
            choice, = self.choices(**array, max_tokens=max_tokens, seed=max_tokens)
            self.assertEqual(choice["finish_reason"], "stop", choice)
            self.assertIsInstance(json.loads(choice["text"]), list)
        # There is no room for the shortest one.
        choice, = self.choices(**KINDS["schema"][0], max_tokens=5, seed=1)
        self.assertEqual(choice["finish_reason"], "length")

    def test_log_probabilities_are_the_models_own(self):
        """What is picked may be unlikely; the likeliest are not what the grammar allows."""
        free, = self.choices(max_tokens=1, temperature=0, logprobs=3)
        bound, = self.choices(max_tokens=1, temperature=0, logprobs=3, guided_choice=["zzz"])
        self.assertEqual(free["logprobs"]["top_logprobs"][0].items()
                         & bound["logprobs"]["top_logprobs"][0].items(),
                         free["logprobs"]["top_logprobs"][0].items())
        self.assertEqual(bound["text"][0], "z")

    def test_many_at_once(self):
        """Other answers, bound or free, change nothing about one."""
        kinds = list(KINDS)
        asked = [{**HOT, "seed": seed, "max_tokens": 60,
                  **(KINDS[kinds[seed % len(kinds)]][0] if seed % 6 else {})}
                 for seed in range(18)]
        alone = [self.choices(**fields)[0]["text"] for fields in asked]
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            together = list(pool.map(lambda fields: self.choices(**fields)[0]["text"], asked))
        self.assertEqual(alone, together)

    def test_same_as_in_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            schema, rules = pathlib.Path(folder) / "schema.json", pathlib.Path(folder) / "rules"
            schema.write_text(json.dumps(PERSON))
            rules.write_text(RULES)
            options = {"schema": ("--json-schema", schema), "regex": ("--regex", DATE),
                       "rules": ("--grammar", rules)}
            for kind, option in options.items():
                with self.subTest(kind=kind):
                    alone = run(BATON, "run", "--model", self.cluster.model, "--raw", *option,
                                "--max-tokens", "120", "--temperature", "1", "--seed", "5",
                                "Tell me ")
                    self.assertEqual(alone.returncode, 0, alone.stderr)
                    choice, = self.choices(**KINDS[kind][0], seed=5, max_tokens=120)
                    self.assertEqual(choice["text"], alone.stdout)


class Apart(StructuredCases, unittest.TestCase):
    layout = {"prefill": 1}

    def refusal(self, **fields):
        answer = self.client.chat("Hello", **fields)
        self.assertEqual(answer.status, 400, answer.body)
        return answer.json()["error"]

    def test_what_cannot_be_met_names_its_place(self):
        error = self.refusal(response_format={"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"type": "object", "properties": {"a": {"enum": []}},
                                    "required": ["a"]}}})
        self.assertEqual(error["param"], "response_format")
        self.assertIn("#/properties/a", error["message"])
        error = self.refusal(structured_outputs={"regex": "a(?=b)"})
        self.assertEqual(error["param"], "structured_outputs.regex")
        error = self.refusal(guided_json={}, guided_regex="a")
        self.assertIn("`guided_json` and `guided_regex`", error["message"])

    def test_answers_that_are_bound_are_counted(self):
        before = self.client.metric("baton_grammar_requests_total", kind="regex")
        self.choices(**KINDS["regex"][0])
        self.assertEqual(self.client.metric("baton_grammar_requests_total", kind="regex"),
                         before + 1)


class Colocated(StructuredCases, unittest.TestCase):
    layout = {"prefill": 0}


class ReplacedTest(unittest.TestCase):
    """Whoever is asked first is chance, but the other one is slow, so it is asked soon."""

    def test_a_prefill_node_that_dies_over_an_answer_is_replaced(self):
        cluster = Cluster(tiny_model(context=2048), prefill=2,
                          options=("--fault", "prefill-0=engine-step:1:die",
                                   "--fault", "prefill-1=engine-step:1+:delay"))
        self.addCleanup(cluster.close)
        seeds = itertools.count()
        alone = {}

        def ask(seed):
            answer = cluster.client.complete("Tell me ", **KINDS["regex"][0], **HOT, seed=seed)
            self.assertEqual(answer.status, 200, answer.body)
            return answer.json()["choices"][0]["text"]

        def all_right():
            asked = [next(seeds) % 6 for _ in range(6)]
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                for seed, text in zip(asked, pool.map(ask, asked)):
                    if seed not in alone:
                        alone[seed] = run(BATON, "run", "--model", cluster.model, "--raw",
                                          "--max-tokens", "200", "--temperature", "1", "--seed",
                                          seed, "--regex", DATE, "Tell me ").stdout
                    self.assertEqual(text, alone[seed])
            return cluster.client.metric("baton_prefill_retries_total") > 0
        wait_for(all_right, "an answer that was begun by another node", DEADLINE_S)


class ClientTest(unittest.TestCase):
    """What programs use: classes of theirs go in, objects of them come out."""

    @classmethod
    def setUpClass(cls):
        cls.openai = python_package("openai")
        cls.pydantic = python_package("pydantic")
        cls.cluster = Cluster(tiny_model(context=2048))
        cls.client = cls.openai.OpenAI(base_url=cls.cluster.url + "/v1", api_key="x", max_retries=0,
                                       timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def test_parse(self):
        pydantic = self.pydantic

        class Step(pydantic.BaseModel):
            what: str = pydantic.Field(max_length=10)
            done: bool

        class Plan(pydantic.BaseModel):
            title: str = pydantic.Field(max_length=12)
            steps: list[Step] = pydantic.Field(max_length=2)
            cost: int | None

        for seed in range(3):
            answer = self.client.chat.completions.parse(
                model=self.client.models.list().data[0].id, seed=seed, temperature=1,
                messages=[{"role": "user", "content": "Plan it"}], response_format=Plan,
                max_completion_tokens=300)
            plan = answer.choices[0].message.parsed
            self.assertIsInstance(plan, Plan)
            self.assertLessEqual(len(plan.steps), 2)


class RealModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = real_model()
        if is_sanitized():
            raise unittest.SkipTest("the real model takes minutes under a sanitizer")
        cls.cluster = Cluster(cls.model, options=("--context", "2048"))
        cls.client = cls.cluster.client

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def test_extraction(self):
        question = ("Ada Lovelace, 36, lives near London and is glad. Write her as JSON with name, "
                    "age, mood and home.")
        for seed in range(2):
            text = chat_text(self.client.chat(question, **KINDS["schema"][0], seed=seed,
                                              temperature=0.7, max_tokens=200))
            self.assertTrue(check(PERSON, json.loads(text)), text)
            self.assertEqual(stream_text(self.client.chat_stream(
                question, **KINDS["schema"][0], seed=seed, temperature=0.7, max_tokens=200)), text)

    def test_what_can_be_read_in_too_many_ways_ends_and_holds_up_nobody(self):
        many = range(100)
        wide = " | ".join(f"r{i}" for i in many)
        ends = "\n".join(f'r{i} ::= [^\\x01]* "\\x01{i}"' for i in many)
        for rules, limit in (
                ("root ::= x x x x x x x x x x x x\nx ::= [a-z ]* [a-z ]* [a-z ]*",
                 "the grammar takes more than 33554432 steps of work"),
                (f"root ::= {wide}\n{ends}", "no answer can begin: the grammar takes more than "),
                (f'root ::= "a" ({wide})\n{ends}', "more than 33554432 steps")):
            answer = self.client.chat("Say when.", structured_outputs={"grammar": rules},
                                      max_tokens=9)
            self.assertEqual(answer.status, 400, answer.body)
            self.assertIn(limit, answer.json()["error"]["message"])
        self.test_kinds()

    def test_kinds(self):
        for kind in ("regex", "choice", "rules", "object"):
            fields, fits = KINDS[kind]
            with self.subTest(kind=kind):
                text = chat_text(self.client.chat("Say when.", **fields, temperature=0,
                                                  max_tokens=120))
                self.assertTrue(fits(text), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
