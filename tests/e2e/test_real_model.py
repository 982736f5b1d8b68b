"""The real model, once: text against the reference data, and the flow of ops/quickstart."""
import json
import unittest

from cluster import Cluster
from processes import BATON, chat_text, real_model, run, shared_folder

# Below this lead of the best logit over the second the next token may fall either way.
SURE_MARGIN = 0.5


def sure_ids(steps):
    """The reference's tokens up to the first one that another rounding could flip."""
    ids = []
    for step in steps:
        (best, first), (_, second) = step["top"][:2]
        if first - second < SURE_MARGIN:
            break
        ids.append(best)
    return ids


class RealModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = real_model()
        cls.cluster = Cluster(cls.model, options=("--context", "2048"))

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def text_of(self, ids):
        return run(BATON, "detokenize", "--model", self.model, stdin=json.dumps(ids)).stdout

    def test_golden_text(self):
        lines = (shared_folder() / "golden/smollm2-135m/greedy.jsonl").read_text().splitlines()
        compared = 0
        for line in lines:
            golden = json.loads(line)
            ids = sure_ids(golden["steps"])
            if not ids or ids[-1] == 2 or len(golden["ids"]) > 1500:
                continue
            with self.subTest(prompt=golden["prompt"][:40]):
                # As text, unless it has special tokens, which are text when a client sends them.
                special = "<|" in golden["prompt"]
                answer = self.cluster.client.complete(
                    golden["ids"] if special else golden["prompt"], max_tokens=len(ids),
                    temperature=0)
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json()["usage"]["prompt_tokens"], len(golden["ids"]))
                self.assertEqual(answer.json()["choices"][0]["text"], self.text_of(ids))
                compared += len(ids)
        self.assertGreater(compared, 20)

    def test_same_as_in_one_process(self):
        question = "What is the capital of France? Answer in one sentence."
        alone = run(BATON, "run", "--model", self.model, "--max-tokens", "40", question)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        asked = run(BATON, "ask", "--url", self.cluster.url, "--max-tokens", "40", question)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertEqual(asked.stdout, alone.stdout + "\n")
        self.assertIn("Paris", asked.stdout)
        for words in ("router queue", "prefill", "hand-off", "MiB"):
            self.assertIn(words, asked.stderr)

    def test_long_prompt(self):
        prompt = "Runners train for the relay every day of the year. " * 60
        fields = {"max_tokens": 12, "temperature": 0}
        answer = self.cluster.client.chat(prompt, **fields, timings=True)
        self.assertEqual(answer.status, 200, answer.body)
        alone = run(BATON, "run", "--model", self.model, "--max-tokens", "12", "-", stdin=prompt)
        self.assertEqual(chat_text(answer), alone.stdout)
        # A page of this model holds 64 tokens of 23,040 bytes; every prompt token crosses.
        tokens = answer.json()["usage"]["prompt_tokens"]
        self.assertGreaterEqual(answer.json()["timings"]["handoff_bytes"], tokens * 23040)


if __name__ == "__main__":
    unittest.main(verbosity=2)
