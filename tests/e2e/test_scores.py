"""How likely the tokens of a prompt were: the numbers are those that the same tokens had when they
were written, to the last bit, whoever reads the prompt and in whatever pieces."""
import json
import math
import threading
import unittest

from cluster import Cluster
from processes import BATON, run

WORDS = "The runners hand the baton on, one after the other, until the race is over. "


class Scores:
    """The same cases over clusters that differ in who reads prompts."""

    prefill, options = 1, ()

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(prefill=cls.prefill, options=cls.options)
        cls.addClassCleanup(cls.cluster.close)
        answer = cls.cluster.client.complete(
            WORDS * 12, max_tokens=40, temperature=0, ignore_eos=True, logprobs=3,
            return_token_ids=True).json()["choices"][0]
        cls.prompt, cls.written = answer["prompt_token_ids"], answer["token_ids"]
        cls.text, cls.told = answer["text"], answer["logprobs"]
        cls.whole = cls.prompt + cls.written

    def ask(self, path="/v1/completions", **fields):
        answer = self.cluster.client.post(path, {"temperature": 0, **fields})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    def score(self, prompt=None, **fields):
        return self.ask(prompt=prompt or self.whole, echo=True, max_tokens=0, logprobs=3, **fields)

    def test_scores_are_those_of_writing(self):
        self.assertGreater(len(self.prompt), 3 * 64, "it has to be read in several pieces")
        for _ in range(2):  # the second time all of it is in caches
            body = self.score()
            choice, = body["choices"]
            told = choice["logprobs"]
            self.assertEqual(len(told["tokens"]), len(self.whole))
            self.assertEqual((told["token_logprobs"][0], told["top_logprobs"][0]), (None, None))
            behind = len(self.prompt)
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                self.assertEqual(told[name][behind:], self.told[name], name)
            for logprob, top in list(zip(told["token_logprobs"], told["top_logprobs"]))[1:]:
                self.assertIn(logprob, top.values())
                self.assertIn(len(top), (3, 4))
            self.assertEqual(choice["finish_reason"], "length")
            self.assertTrue(choice["text"].endswith(self.text))
            for token, offset in zip(told["tokens"][:behind], told["text_offset"]):
                if not token.startswith("bytes:"):
                    self.assertTrue(choice["text"].encode()[offset:].startswith(token.encode()))
            self.assertEqual(body["usage"]["completion_tokens"], 0)
            self.assertEqual(body["usage"]["prompt_tokens"], len(self.whole))

    def test_an_answer_follows_its_prompt(self):
        choice, = self.ask(prompt=self.prompt, echo=True, max_tokens=40, logprobs=3,
                           ignore_eos=True, return_token_ids=True)["choices"]
        self.assertEqual(choice["token_ids"], self.written, "those of the prompt stand elsewhere")
        self.assertEqual(choice["logprobs"]["token_logprobs"][len(self.prompt):],
                         self.told["token_logprobs"])
        self.assertEqual(choice["logprobs"]["tokens"][len(self.prompt):], self.told["tokens"])
        whole = self.score()["choices"][0]["logprobs"]["token_logprobs"]
        self.assertEqual(choice["logprobs"]["token_logprobs"], whole)

    def test_the_id_that_ends_an_answer_is_told_of(self):
        """It has no text and counts, so that there is an entry for each token that was computed:
        who cuts the last one off a prompt with one token behind relies on it."""
        for count in (0, 3):
            stop = self.written[count]
            if stop in self.written[:count]:
                continue
            body = self.ask(prompt=self.prompt, echo=True, max_tokens=count + 1, logprobs=3,
                            stop_token_ids=[stop], return_token_ids=True)
            choice, = body["choices"]
            told, end = choice["logprobs"], len(self.prompt) + count + 1
            self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))
            self.assertEqual(choice["token_ids"], self.written[:count + 1])
            self.assertEqual(body["usage"]["completion_tokens"], count + 1)
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                self.assertEqual(told[name][len(self.prompt):], self.told[name][:count + 1], name)
            self.assertEqual(len(told["text_offset"]), end)
            self.assertEqual(told["text_offset"][-1], len(choice["text"].encode()))
        chat = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 8,
                "return_token_ids": True}
        first = self.ask("/v1/chat/completions", **chat)["choices"][0]["token_ids"][0]
        choice, = self.ask("/v1/chat/completions", stop_token_ids=[first], logprobs=True,
                           top_logprobs=1, **chat)["choices"]
        self.assertEqual((choice["message"]["content"], choice["token_ids"]), ("", [first]))
        entry, = choice["logprobs"]["content"]
        self.assertEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"])

    def test_streamed_scores_are_the_same(self):
        whole = self.score()["choices"][0]
        text, numbers, reasons = "", [], []
        for chunk in self.cluster.client.stream(
                "/v1/completions", {"prompt": self.whole, "echo": True, "max_tokens": 0,
                                    "logprobs": 3, "temperature": 0, "stream": True}):
            choice = chunk["choices"][0]
            text += choice["text"]
            numbers += (choice["logprobs"] or {}).get("token_logprobs", [])
            reasons.append(choice["finish_reason"])
        self.assertEqual((text, numbers), (whole["text"], whole["logprobs"]["token_logprobs"]))
        self.assertEqual([reason for reason in reasons if reason], ["length"])

    def test_prompts_side_by_side(self):
        """What is in a pass with a prompt does not change its scores, nor does where it is cut."""
        prompts = [self.whole[:count] for count in (1, 2, 64, 65, 66, 130, len(self.whole))]
        whole = self.score()["choices"][0]["logprobs"]
        answers, count = [], 3
        threads = [threading.Thread(target=lambda: answers.append(self.score(prompt=prompts)))
                   for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), count)
        for answer in answers:
            for prompt, choice in zip(prompts, answer["choices"], strict=True):
                for name in ("token_logprobs", "top_logprobs", "tokens"):
                    self.assertEqual(choice["logprobs"][name], whole[name][:len(prompt)])

    def test_scores_are_those_of_the_logits(self):
        rows = json.loads(run(BATON, "eval", "--model", self.cluster.model, "--ids", "-", "--json",
                              "--all-positions", stdin=json.dumps(self.whole)).stdout)["logits"]
        scores = self.ask(prompt=self.whole, max_tokens=1,
                          prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
        self.assertEqual(len(rows), len(scores))
        for token, row, entries in zip(self.whole[1:], rows, scores[1:]):
            own, most = entries[str(token)], max(row)
            total = math.log(math.fsum(math.exp(logit - most) for logit in row))
            self.assertAlmostEqual(own["logprob"], row[token] - most - total, delta=2e-6)
            self.assertEqual(own["rank"], 1 + sum(logit > row[token] for logit in row))

    def test_beside_the_answer(self):
        """The shape of vLLM's prompt_logprobs, with the numbers of the other one."""
        body = self.ask(prompt=self.whole, max_tokens=1, prompt_logprobs=2, ignore_eos=True)
        scores = body["choices"][0]["prompt_logprobs"]
        whole = self.score()["choices"][0]["logprobs"]["token_logprobs"]
        self.assertEqual(len(scores), len(self.whole))
        self.assertIsNone(scores[0])
        for token, logprob, entries in list(zip(self.whole, whole, scores))[1:]:
            own = entries[str(token)]
            self.assertEqual(own["logprob"], logprob)
            self.assertIn(len(entries), (2, 3))
            ranks = [entry["rank"] for key, entry in entries.items() if key != str(token)]
            self.assertEqual(sorted(ranks + [own["rank"]])[:2], [1, 2])
            for entry in entries.values():
                if entry["rank"] < own["rank"]:
                    self.assertGreaterEqual(entry["logprob"], own["logprob"])
        body = self.ask("/v1/chat/completions", messages=[{"role": "user", "content": WORDS}],
                        max_tokens=2, prompt_logprobs=0, return_token_ids=True)
        self.assertEqual(len(body["prompt_logprobs"]), len(body["prompt_token_ids"]))
        for token, entries in list(zip(body["prompt_token_ids"], body["prompt_logprobs"]))[1:]:
            self.assertEqual(list(entries), [str(token)])


class ScoresOfAPair(Scores, unittest.TestCase):
    pass


class ScoresOfOneNode(Scores, unittest.TestCase):
    prefill = 0


if __name__ == "__main__":
    unittest.main()
