"""Nodes that come back at the address they had while hand-offs of their former life are open, and
prompts that wait for the pages of a prefill node: who held them is counted."""
import subprocess
import threading
import unittest

from apart import Apart
from fault_cluster import LONG, prompts, wait_for
from processes import BIN

ROUNDS = 6 if LONG else 2


def movers():
    """The movers that are built in, by the words of a node that was given a wrong one."""
    words = subprocess.run([str(BIN / "baton-prefill"), "--model", "x", "--mover", "none"],
                           capture_output=True, text=True, check=False).stderr
    return [mover for mover in ("ucx", "tls") if mover in words]


class Asked:
    """Requests under way; their ends, when joined."""

    def __init__(self, apart, texts):
        self.ends = []
        self.threads = [threading.Thread(target=lambda p=prompt: self.ends.append(apart.ask(p)))
                        for prompt in texts]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join()
        return self.ends


class Restarts(unittest.TestCase):
    def fired(self, apart, name):
        return (apart.folder / f"{name}.log").read_text().count("fault fired")

    def come_back(self, name):
        """Every data message takes half a second, so that whoever dies does so in the middle."""
        for mover in movers():
            with self.subTest(mover=mover):
                apart = Apart(mover, options={
                    "prefill": ["--enable-fault-injection", "--fault", "data-send:2+:delay"]})
                self.addCleanup(apart.close)
                self.assertTrue(apart.ask(prompts(1)[0]))
                for _ in range(ROUNDS):
                    before = self.fired(apart, "prefill")
                    asked = Asked(apart, prompts(4))
                    wait_for(lambda before=before: self.fired(apart, "prefill") > before,
                             "pages on their way")
                    apart.kill(name)
                    apart.start(name)
                    self.assertEqual(len(asked.join()), 4)
                    apart.assert_well(prompts(1)[0])
                log = (apart.folder / f"{name}.log").read_text()
                self.assertEqual(log.count("ready: "), 1 + ROUNDS, log)

    def test_a_decode_node_comes_back_at_its_port(self):
        self.come_back("decode")

    def test_a_prefill_node_comes_back(self):
        self.come_back("prefill")


class Waits(unittest.TestCase):
    """A prefill node with the pages of one context of 512 tokens, and prompts of more than half of
    it."""

    def waits(self, fault):
        apart = Apart(movers()[0], options={
            "prefill": ["--context", "512", "--kv-memory", "384K", "--chunk-tokens", "512",
                        "--enable-fault-injection", "--fault", fault]})
        self.addCleanup(apart.close)
        asked = Asked(apart, prompts(3, 300))
        self.assertEqual(asked.join(), [True] * 3)

        def told():
            prefill = next(worker for worker in apart.workers() if worker["role"] == "prefill")
            counts = prefill["handoff"]["waits_handoffs"], prefill["handoff"]["waits_prompts"]
            return counts if any(counts) else None
        counts = wait_for(told, "a heartbeat that tells of prompts that waited")
        for held_by, count in zip(("handoffs", "prompts"), counts):
            wait_for(lambda held_by=held_by, count=count: count <= apart.client.metric(
                "baton_prefill_waits_total", held_by=held_by), "the metric to tell the same")
        return counts

    def test_hand_offs_hold_the_pages(self):
        self.assertGreater(self.waits("done:1+:delay")[0], 0)

    def test_prompts_hold_the_pages(self):
        """All of them are there before the first is read."""
        self.assertGreater(self.waits("engine-step:1:delay")[1], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
