"""Two prefill nodes: prompts go where their beginnings are, and where one dies the other reads."""

import concurrent.futures
import itertools
import unittest

from cluster import Cluster
from processes import BATON, DEADLINE_S, run, wait_for

BEGINNING = "The runners of a relay hand a baton on from one to the next. " * 12
AT_ONCE, MAX_TOKENS = 8, 12


class PlacementTest(unittest.TestCase):
    def start(self, *options):
        cluster = Cluster(prefill=2, options=options)
        self.addCleanup(cluster.close)
        return cluster

    def ask(self, cluster, prompt):
        answer = cluster.client.complete(prompt, max_tokens=MAX_TOKENS, temperature=0)
        self.assertEqual(answer.status, 200, f"{answer.body}\n{cluster.words()}")
        return answer.json()

    def alone(self, cluster, prompt):
        return run(BATON, "run", "--model", cluster.model, "--raw", "--temperature", "0",
                   "--max-tokens", MAX_TOKENS, "-", stdin=prompt).stdout

    def test_siblings_share_what_the_first_one_left(self):
        cluster = self.start()
        for family in range(3):
            for sibling in range(5):
                body = self.ask(cluster, f"{family} {BEGINNING} {sibling}")
                cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
                if sibling == 0:
                    self.assertEqual(cached, 0)
                else:
                    self.assertGreater(cached, 0, f"sibling {sibling} of family {family}")

    def test_without_caches_nothing_is_expected_in_one(self):
        cluster = self.start("--no-prefix-cache")
        for sibling in range(5):
            self.ask(cluster, f"{BEGINNING} {sibling}")
        self.assertEqual(cluster.client.metric("baton_placement_cached_tokens_total"), 0)

    def test_a_node_that_dies_over_a_prompt_is_replaced(self):
        """Whoever is asked first is chance, but the other one is slow, so it is asked soon."""
        cluster = self.start("--fault", "prefill-0=engine-step:1:die",
                             "--fault", "prefill-1=engine-step:1+:delay")
        rounds = itertools.count()

        def all_right():
            number = next(rounds)
            prompts = [f"{number} {place} {BEGINNING}" for place in range(AT_ONCE)]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                bodies = list(pool.map(lambda prompt: self.ask(cluster, prompt), prompts))
            for prompt, body in zip(prompts, bodies):
                self.assertEqual(body["choices"][0]["text"], self.alone(cluster, prompt))
            return cluster.client.metric("baton_prefill_retries_total") > 0
        wait_for(all_right, "a prompt that was read by another node", DEADLINE_S)


if __name__ == "__main__":
    unittest.main()
