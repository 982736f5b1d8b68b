"""A decode node behind a link that is far, lossy, slow or cut: the right text or one clean error,
all pages back, and everything well again when the link is."""
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

from fault_cluster import LONG, TIMES, prompts, reference, tiny_model, wait_for
from link import HERE, THERE, Link, enter_namespace
from processes import BIN, Client, clean_environment

BEHIND_UCX = {"UCX_TLS": "tcp"}  # shared memory would reach through namespaces


def setUpModule():
    enter_namespace()


class Apart:
    """Router and prefill node here, the decode node there."""

    def __init__(self, mover):
        self.link = Link()
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-fault-")
        self.folder = pathlib.Path(self.scratch.name)
        self.processes = []
        secret = self.folder / "secret"
        secret.write_text("the secret of this test alone\n")
        secret.chmod(0o600)
        common = ["--model", str(tiny_model()), "--secret-file", str(secret)]
        worker = [*common, "--threads", "1", "--mover", mover, "--router"]
        try:
            self._spawn("router", [str(BIN / "baton-router"), *common, "--http", "127.0.0.1:0",
                                   "--control", f"{HERE}:0", "--state-dir", str(self.folder)])
            found = wait_for(lambda: self._said("router", "HTTP on port "), "the router")
            http, control = (word.rstrip(",") for word in (found[0], found[4]))
            self._spawn("prefill", [str(BIN / "baton-prefill"), *worker, f"{HERE}:{control}"])
            self._spawn("decode", self.link.inside(
                str(BIN / "baton-decode"), *worker, f"{HERE}:{control}", "--data", f"{THERE}:0"))
            self.client = Client(f"http://127.0.0.1:{http}")
            wait_for(lambda: len(self.up()) == 2, "both nodes")
        except BaseException:
            self.close()
            raise

    def _spawn(self, name, words):
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes.append(subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**clean_environment(), **TIMES, **BEHIND_UCX}))

    def _said(self, name, words):
        text = (self.folder / f"{name}.log").read_text()
        return text.split(words, 1)[1].split() if words in text else None

    def words(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()}"
                         for path in sorted(self.folder.glob("*.log")))

    def up(self):
        return [worker for worker in self.client.get("/workers").json()["workers"]
                if worker["state"] == "up"]

    def ask(self, prompt):
        answer = self.client.complete(prompt, max_tokens=16, temperature=0)
        if answer.status != 200:
            if answer.status < 500 or "message" not in answer.json()["error"]:
                raise AssertionError(f"{answer.status}: {answer.body}\n{self.words()}")
            return False
        if answer.json()["choices"][0]["text"] != reference(prompt):
            raise AssertionError(f"wrong text {answer.body}\n{self.words()}")
        return True

    def assert_well(self):
        """Both nodes are there, a prompt travels, and nothing is held."""
        carried = self.link.carried["out"]
        wait_for(lambda: len(self.up()) == 2, "both nodes again")
        wait_for(lambda: self.ask(prompts(1)[0]), "an answer")
        if self.link.carried["out"] - carried < 10000:
            raise AssertionError("the pages did not go over the link")
        wait_for(lambda: all(worker["pages_free"] == worker["pages_total"] and
                             worker["pages_handoff"] == 0 for worker in self.up()),
                 "all pages to be free again")

    def close(self):
        codes = []
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                codes.append(process.wait(30))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        words = self.words()
        self.link.close()
        self.scratch.cleanup()
        if any(codes) or "Sanitizer" in words:
            raise AssertionError(f"ended with {codes}\n{words}")


class NetworkCases:
    mover = None

    def start(self):
        apart = Apart(self.mover)
        self.addCleanup(apart.close)
        return apart

    def asked_meanwhile(self, apart, count):
        """Requests that run while something happens to the link; their ends, when joined."""
        ends = []
        threads = [threading.Thread(target=lambda p=prompt: ends.append(apart.ask(p)))
                   for prompt in prompts(count, 600)]
        for thread in threads:
            thread.start()
        return threads, ends

    def test_a_far_link(self):
        apart = self.start()
        apart.link.delay_s = 0.03
        for prompt in prompts(6):
            self.assertTrue(apart.ask(prompt))
        apart.assert_well()

    def test_a_lossy_link(self):
        apart = self.start()
        apart.link.loss = 0.02
        answered = [apart.ask(prompt) for prompt in prompts(20 if LONG else 8)]
        self.assertIn(True, answered)
        apart.link.loss = 0
        apart.assert_well()

    def test_a_slow_link(self):
        apart = self.start()
        apart.link.limit("4mbit")
        threads, ends = self.asked_meanwhile(apart, 4)
        for thread in threads:
            thread.join()
        self.assertIn(True, ends)
        apart.assert_well()

    def cut(self, directions):
        apart = self.start()
        self.assertTrue(apart.ask(prompts(1)[0]))
        apart.link.limit("2mbit")  # so that they are on their way when it is cut
        threads, ends = self.asked_meanwhile(apart, 3)
        carried = apart.link.carried["out"]
        wait_for(lambda: apart.link.carried["out"] - carried > 20000, "pages on their way")
        apart.link.cut = set(directions)
        begin = time.monotonic()
        wait_for(lambda: len(apart.up()) < 2, "the router to lose a node")
        for thread in threads:
            thread.join()
        self.assertEqual(len(ends), 3)
        self.assertLess(time.monotonic() - begin, 60)  # lost tests alone end here
        apart.link.cut = set()
        apart.assert_well()

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
