"""Every field that moves logits, through whole clusters: each case is built so that the field alone
decides what comes out. Numbers are compared with one process in test_identity."""
import json
import unittest

from cluster import Cluster
from processes import BATON, run, wait_for

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

    def test_the_token_that_ends_an_answer_is_counted(self):
        ends = {**self.pair, "stop_token_ids": [self.a], "min_tokens": 7}
        for max_tokens, count in ((12, 8), (8, 8), (7, 7)):
            answer = self.client.complete(PROMPT, max_tokens=max_tokens, **ends)
            self.assertEqual(answer.json()["usage"]["completion_tokens"], count)

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

    def choices(self, n, **fields):
        answer = self.client.complete(PROMPT, n=n, **fields)
        self.assertEqual(answer.status, 200, answer.body)
        body = answer.json()
        self.assertEqual([choice["index"] for choice in body["choices"]], list(range(n)))
        return body

    def test_several_choices(self):
        hot = {"temperature": 1.2, "seed": 5, "max_tokens": 30, "ignore_eos": True, "logprobs": 1}
        body = self.choices(8, **hot)
        texts = [choice["text"] for choice in body["choices"]]
        self.assertEqual(len(set(texts)), 8)
        self.assertEqual(body["usage"]["prompt_tokens"], len(self.ids_of(PROMPT)))
        self.assertEqual(body["usage"]["completion_tokens"], 8 * 30)
        for choice in body["choices"]:
            self.assertEqual(len(choice["logprobs"]["tokens"]), 30)
            self.assertEqual(choice["finish_reason"], "length")
        # The first ones are the same however many there are.
        self.assertEqual([choice["text"] for choice in self.choices(3, **hot)["choices"]],
                         texts[:3])
        self.assertEqual(self.choice(**{**hot, "max_tokens": 30})["text"], texts[0])

    def test_choices_end_each_for_itself(self):
        hot = {"temperature": 1.3, "seed": 3, "max_tokens": 40, "ignore_eos": True}
        whole = [choice["text"] for choice in self.choices(5, **hot)["choices"]]
        stop = whole[2][3:5]
        for choice, text in zip(self.choices(5, **hot, stop=[stop])["choices"], whole):
            at = text.find(stop)
            self.assertEqual(choice["text"], text if at < 0 else text[:at])
            self.assertEqual(choice["finish_reason"], "length" if at < 0 else "stop")
            self.assertEqual(choice["stop_reason"], None if at < 0 else stop)

    def test_streamed_choices(self):
        for stop in (None, ["e"]):
            with self.subTest(stop=stop):
                fields = {"temperature": 1.2, "seed": 5, "max_tokens": 30, "ignore_eos": True,
                          "stop": stop, "n": 4}
                body = self.client.chat("x", **fields).json()
                texts, ends = [""] * 4, [[] for _ in range(4)]
                events = self.client.chat_stream("x", **fields,
                                                 stream_options={"include_usage": True})
                chunks = list(events)
                self.assertTrue(events.done)
                for chunk in chunks:
                    for choice in chunk["choices"]:
                        self.assertEqual(ends[choice["index"]], [], "text behind an end")
                        texts[choice["index"]] += choice["delta"].get("content") or ""
                        if choice["finish_reason"]:
                            ends[choice["index"]].append(choice["finish_reason"])
                for choice, text, end in zip(body["choices"], texts, ends):
                    self.assertEqual(text, choice["message"]["content"])
                    self.assertEqual(end, [choice["finish_reason"]])
                self.assertEqual(chunks[-1]["usage"]["completion_tokens"],
                                 body["usage"]["completion_tokens"])
                self.assertEqual(chunks[-1]["usage"]["prompt_tokens"],
                                 body["usage"]["prompt_tokens"])

    def test_one_token_choices(self):
        body = self.choices(6, temperature=1.5, seed=1, max_tokens=1, ignore_eos=True)
        self.assertEqual(body["usage"]["completion_tokens"], 6)

    def test_a_client_that_leaves_takes_all_choices_along(self):
        events = self.client.complete_stream(PROMPT, n=6, temperature=1, max_tokens=1800,
                                             ignore_eos=True)
        next(iter(events))
        events.close()
        wait_for(lambda: all(worker["running"] + worker["waiting"] == 0 and
                             worker["pages_free"] == worker["pages_total"]
                             for worker in self.cluster.workers()), "idle workers")


class Apart(SamplingCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}


class Colocated(SamplingCases, unittest.TestCase):
    layout = {"prefill": 0, "decode": 1}


if __name__ == "__main__":
    unittest.main()
