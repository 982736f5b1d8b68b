"""Prompts that a decode node reads itself because little of them is not in its pages: the text is
that of one process, and what was read so is counted with its reason."""

import unittest

from cluster import Cluster
from processes import BATON, run, wait_for


class LocalPrefillTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(env={"BATON_LOCAL_PREFILL_TOKENS": "40"})
        cls.addClassCleanup(cls.cluster.close)

    def placements(self, reason):
        return self.cluster.client.metric("baton_placements_total", reason=reason)

    def ask(self, prompt, max_tokens):
        answer = self.cluster.client.complete(prompt, max_tokens=max_tokens, temperature=0)
        self.assertEqual(answer.status, 200, answer.json())
        return answer.json()

    def alone(self, prompt, max_tokens):
        return run(BATON, "run", "--model", self.cluster.model, "--raw", "--temperature", "0",
                   "--max-tokens", max_tokens, "-", stdin=prompt).stdout

    def test_short_tails_are_read_by_the_decode_node(self):
        prompt = "hands the baton on, " * 20
        shorts, handed = self.placements("short"), 0
        for turn in range(3):
            body = self.ask(prompt, 100)
            self.assertEqual(body["choices"][0]["text"], self.alone(prompt, 100))
            details = body["usage"]["prompt_tokens_details"]
            if turn == 0:
                handed = wait_for(
                    lambda: self.cluster.client.metric("baton_handoff_bytes_total"),
                    "the prefill node's report")
                self.assertEqual(self.placements("short"), shorts)
            else:
                self.assertGreater(details["cached_tokens"], 0)
                self.assertEqual(self.placements("short"), shorts + turn)
            prompt += " "
        self.assertEqual(self.cluster.client.metric("baton_handoff_bytes_total"), handed)


if __name__ == "__main__":
    unittest.main()
