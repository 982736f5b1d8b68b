"""Every field that moves logits, through whole clusters: each case is built so that the field alone
decides what comes out. Numbers are compared with one process in test_identity."""
import json
import unittest

from cluster import Cluster
from processes import BATON, run

PROMPT = "The aaa runner"


class SamplingCases:
    layout = {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(**cls.layout)
        cls.client = cls.cluster.client
        cls.a, = cls.ids_of("a")
        cls.b, = cls.ids_of("b")
        # Only a and b, and a far ahead of b: nothing the model says makes a difference.
        cls.pair = {"allowed_token_ids": [cls.a, cls.b], "temperature": 0, "ignore_eos": True,
                    "logit_bias": {str(cls.a): 100, str(cls.b): 60}}

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    @classmethod
    def ids_of(cls, text):
        return json.loads(run(BATON, "tokenize", "--model", cls.cluster.model, stdin=text).stdout)

    def choice(self, max_tokens=12, **fields):
        answer = self.client.complete(PROMPT, max_tokens=max_tokens, **fields)
        self.assertEqual(answer.status, 200, answer.body)
        choice, = answer.json()["choices"]
        return choice

    def test_allowed_ids_are_the_only_ones(self):
        text = self.choice(40, allowed_token_ids=[self.a, self.b], temperature=1.5, seed=4,
                           ignore_eos=True)["text"]
        self.assertEqual(len(text), 40)
        self.assertLessEqual(set(text), {"a", "b"})

    def test_bias_decides(self):
        self.assertEqual(self.choice(**self.pair)["text"], "a" * 12)
        self.assertEqual(self.choice(**{**self.pair, "logit_bias": {str(self.b): 100}})["text"],
                         "b" * 12)

    def test_log_probabilities_are_the_models_own(self):
        plain = self.choice(1, temperature=0, logprobs=5, ignore_eos=True)["logprobs"]
        moved = self.choice(1, logprobs=5, **self.pair)["logprobs"]
        self.assertEqual(moved["tokens"], ["a"])
        self.assertLess(moved["token_logprobs"][0], plain["token_logprobs"][0])
        tops = {**plain["top_logprobs"][0], "a": moved["token_logprobs"][0]}
        self.assertEqual(moved["top_logprobs"][0], tops)

    def test_repetition_counts_the_prompt(self):
        text = self.choice(**self.pair, repetition_penalty=1000)["text"]
        self.assertEqual(text[0], "b")

    def test_presence_and_frequency_count_the_answer(self):
        near = {**self.pair, "logit_bias": {str(self.a): 100, str(self.b): 90}}
        for field in ("presence_penalty", "frequency_penalty"):
            with self.subTest(field=field):
                text = self.choice(30, **near, **{field: 2})["text"]
                self.assertEqual(text[0], "a")
                # The one is taken off once, the other for each time.
                self.assertEqual("b" in text, field == "frequency_penalty")

    def test_bad_words_are_not_completed(self):
        self.assertEqual(self.choice(**self.pair, bad_words=["a"])["text"], "b" * 12)

    def test_bad_words_of_several_tokens(self):
        word = next(word for word in ("aa", "aaa", "aaaa") if
                    self.ids_of(word) == [self.a] * len(word))
        text = self.choice(**self.pair, bad_words=[word])["text"]
        self.assertEqual(text, (("a" * (len(word) - 1) + "b") * 12)[:12])

    def test_early_ends_are_not_picked(self):
        ends = {**self.pair, "stop_token_ids": [self.a]}
        choice = self.choice(**ends)
        self.assertEqual((choice["text"], choice["finish_reason"]), ("", "stop"))
        choice = self.choice(**ends, min_tokens=7)
        self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]),
                         ("b" * 7, "stop", self.a))

    def test_nothing_left_is_an_error_of_the_request(self):
        answer = self.client.complete(PROMPT, max_tokens=3, allowed_token_ids=[self.a],
                                      bad_words=["a"])
        self.assertEqual(answer.status, 400, answer.body)
        self.assertIn("bad_words", answer.json()["error"]["message"])
        self.assertEqual(self.choice(1, temperature=0, ignore_eos=True)["finish_reason"], "length")

    def test_seeds(self):
        hot = {"temperature": 1.5, "ignore_eos": True, "max_tokens": 24}
        first, again, other = (self.choice(**hot, seed=seed)["text"] for seed in (0, 0, 1))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual(self.choice(**hot)["text"], self.choice(**hot)["text"])


class Apart(SamplingCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}


class Colocated(SamplingCases, unittest.TestCase):
    layout = {"prefill": 0, "decode": 1}


if __name__ == "__main__":
    unittest.main()
