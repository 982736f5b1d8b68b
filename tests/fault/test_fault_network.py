"""A decode node behind a link that is far, lossy, slow or cut: the right text or one clean error,
all pages back, and everything well again when the link is."""
import subprocess
import threading
import unittest

from apart import Apart
from fault_cluster import LONG, PATIENT, prompts, wait_for
from link import Link, enter_namespace
from processes import BIN


def setUpModule():
    enter_namespace()


class NetworkCases:
    mover = None

    def start(self, **named):
        apart = Apart(self.mover, Link(), **named)
        self.addCleanup(apart.close)
        return apart

    def assert_well(self, apart):
        carried = apart.link.carried["out"]
        apart.assert_well(prompts(1)[0])
        self.assertGreater(apart.link.carried["out"] - carried, 10000)

    def asked_meanwhile(self, apart, count):
        """Requests that run while something happens to the link; their ends, when joined."""
        ends = []
        threads = [threading.Thread(target=lambda p=prompt: ends.append(apart.ask(p)))
                   for prompt in prompts(count, 600)]
        for thread in threads:
            thread.start()
        return threads, ends

    def test_a_far_link(self):
        apart = self.start(times=PATIENT)
        apart.link.delay_s = 0.03
        for prompt in prompts(6):
            self.assertTrue(apart.ask(prompt))
        self.assert_well(apart)

    def test_a_lossy_link(self):
        apart = self.start()
        apart.link.loss = 0.02
        answered = [apart.ask(prompt) for prompt in prompts(20 if LONG else 8)]
        self.assertIn(True, answered)
        apart.link.loss = 0
        self.assert_well(apart)

    def test_a_slow_link(self):
        apart = self.start(times=PATIENT)
        apart.link.limit("4mbit")
        threads, ends = self.asked_meanwhile(apart, 4)
        for thread in threads:
            thread.join()
        self.assertIn(True, ends)
        self.assert_well(apart)

    def cut(self, directions):
        apart = self.start()
        wait_for(lambda: apart.ask(prompts(1)[0]), "an answer")
        apart.link.limit("2mbit")  # so that they are on their way when it is cut
        threads, ends = self.asked_meanwhile(apart, 3)
        carried = apart.link.carried["out"]
        wait_for(lambda: apart.link.carried["out"] - carried > 20000, "pages on their way")
        apart.link.cut = set(directions)
        wait_for(lambda: len(apart.up()) < 2, "the router to lose a node")
        for thread in threads:
            thread.join()
        self.assertEqual(len(ends), 3)
        apart.link.cut = set()
        self.assert_well(apart)

    def test_a_link_that_is_cut(self):
        self.cut({"in", "out"})

    def test_a_link_that_is_cut_on_the_way_there(self):
        self.cut({"out"})

    def test_a_link_that_is_cut_on_the_way_back(self):
        self.cut({"in"})


class OverUcx(NetworkCases, unittest.TestCase):
    mover = "ucx"

    @classmethod
    def setUpClass(cls):
        help_text = subprocess.run([str(BIN / "baton-prefill"), "--model", "x", "--mover", "none"],
                                   capture_output=True, text=True, check=False).stderr
        if "ucx" not in help_text:
            raise unittest.SkipTest("UCX is not built in")


class OverTls(NetworkCases, unittest.TestCase):
    mover = "tls"


if __name__ == "__main__":
    unittest.main(verbosity=2)
