"""Nodes that come back at the address they had while hand-offs of their former life are open, and
prompts that wait for the pages of a prefill node: who held them is counted."""
import subprocess
import threading
import unittest

from apart import Apart
from fault_cluster import LONG, PATIENT, prompts, wait_for
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
                wait_for(lambda apart=apart: apart.ask(prompts(1)[0]), "an answer")
                for _ in range(ROUNDS):
                    before = self.fired(apart, "prefill")
                    asked = Asked(apart, prompts(4))
                    wait_for(lambda before=before: self.fired(apart, "prefill") > before,
                             "pages on their way")
                    apart.kill(name)
                    apart.start(name)
                    self.assertEqual(len(asked.join()), 4)
                    apart.assert_well(prompts(1)[0])
                    self.assertIsNone(apart.processes[name].poll(), f"{name} is gone again")

    def test_a_decode_node_comes_back_at_its_port(self):
        self.come_back("decode")

    def test_a_prefill_node_comes_back(self):
        self.come_back("prefill")


class Waits(unittest.TestCase):
    def test_who_holds_the_pages_that_prompts_wait_for_is_counted(self):
        """A prefill node with the pages of one context of 512 tokens reads prompts of more than
        half of that, in two chunks of half a second; its hand-offs take as long. Whoever comes
        while one is read waits for it, and whoever is next when it was read for its hand-off.
        Prompts are asked for until there was one of each."""
        count = 4
        apart = Apart(movers()[0], options={
            "prefill": ["--context", "512", "--kv-memory", "384K", "--chunk-tokens", "256",
                        "--no-prefix-cache", "--enable-fault-injection", "--fault",
                        "engine-step:1+:delay,done:1+:delay"]}, times=PATIENT)
        self.addCleanup(apart.close)
        kinds = ("handoffs", "prompts")

        def waits():
            handoff = next(worker["handoff"] for worker in apart.workers()
                           if worker["role"] == "prefill")
            return [handoff[f"waits_{kind}"] for kind in kinds]

        def each_was_waited_for():
            self.assertEqual(Asked(apart, prompts(count, 300)).join(), [True] * count)
            return all(waits())
        wait_for(each_was_waited_for, "prompts that waited for hand-offs and for prompts")
        wait_for(lambda: waits() == [apart.client.metric("baton_prefill_waits_total",
                                                         held_by=kind) for kind in kinds],
                 "the metric to tell the same")


if __name__ == "__main__":
    unittest.main(verbosity=2)
