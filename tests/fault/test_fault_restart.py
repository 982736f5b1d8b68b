"""Nodes that come back at the address they had while hand-offs of their former life are open, and
prompts that wait for the pages of a prefill node: who held them is counted."""
import os
import signal
import subprocess
import threading
import unittest

from apart import Apart
from fault_cluster import LONG, prompts, wait_for
from processes import BIN, all_stopped

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
                    self.assertIsNone(apart.processes[name].poll(), f"{name} is gone again")

    def test_a_decode_node_comes_back_at_its_port(self):
        self.come_back("decode")

    def test_a_prefill_node_comes_back(self):
        self.come_back("prefill")


class Waits(unittest.TestCase):
    def test_who_holds_the_pages_that_prompts_wait_for_is_counted(self):
        """A prefill node with the pages of one context of 512 tokens stops in its first chunk,
        until more prompts of half of that are asked for, and takes half a second for the second, in
        which they come; its hand-offs take as long. So the next prompt waits for a hand-off, and
        the one after it, when that one starts, for a prompt."""
        count = 4
        apart = Apart(movers()[0], options={
            "router": ["--request-timeout-ms", "60s"],
            "prefill": ["--context", "512", "--kv-memory", "384K", "--chunk-tokens", "256",
                        "--no-prefix-cache", "--enable-fault-injection", "--fault",
                        "engine-step:1:stop,engine-step:2:delay,done:1+:delay"]})
        self.addCleanup(apart.close)

        def handoff_of(role):
            return next(worker["handoff"] for worker in apart.workers() if worker["role"] == role)
        asked = Asked(apart, prompts(count, 300))
        pid = apart.processes["prefill"].pid
        wait_for(lambda: all_stopped(pid), "the prefill node to stop")
        wait_for(lambda: handoff_of("decode")["open"] == count, "all to be asked for")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(asked.join(), [True] * count)
        for held_by in ("handoffs", "prompts"):
            wait_for(lambda held_by=held_by: handoff_of("prefill")[f"waits_{held_by}"] > 0,
                     f"prompts that waited for {held_by}")
            wait_for(lambda held_by=held_by: handoff_of("prefill")[f"waits_{held_by}"] ==
                     apart.client.metric("baton_prefill_waits_total", held_by=held_by),
                     "the metric to tell the same")


if __name__ == "__main__":
    unittest.main(verbosity=2)
