"""Router, prefill node and decode node as three processes of the test's own: the decode node may
stand behind a link, and each may die and come back at the same address. Every prompt is handed
over, whole: the decode node keeps none and reads none itself."""
import os
import pathlib
import signal
import subprocess
import tempfile

from fault_cluster import TIMES, reference, tiny_model, wait_for
from link import HERE, THERE
from processes import BIN, DEADLINE_S, Client, clean_environment

BEHIND_UCX = {"UCX_TLS": "tcp"}  # shared memory would reach through namespaces


class Apart:
    """options: further words for the program of that name. times: deadlines of all."""

    def __init__(self, mover, link=None, model=None, options=None, times=None):
        self.link, self.options, self.times = link, options or {}, times or TIMES
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-fault-")
        self.folder = pathlib.Path(self.scratch.name)
        self.processes, self.words_of = {}, {}
        here, there = (HERE, THERE) if link else ("127.0.0.1", "127.0.0.1")
        secret = self.folder / "secret"
        secret.write_text("the secret of this test alone\n")
        secret.chmod(0o600)
        common = ["--model", str(model or tiny_model()), "--secret-file", str(secret)]
        worker = [*common, "--threads", "1", "--mover", mover, "--router"]
        try:
            self._start("router", [str(BIN / "baton-router"), *common, "--http", "127.0.0.1:0",
                                   "--control", f"{here}:0", "--state-dir", str(self.folder),
                                   "--local-prefill-tokens", "0"])
            found = wait_for(lambda: self._said("router", "HTTP on port "), "the router")
            http, control = (word.rstrip(",") for word in (found[0], found[4]))
            self._start("prefill", [str(BIN / "baton-prefill"), *worker, f"{here}:{control}"])
            # A decode node that knew a prompt would be sent nothing of it.
            decode = [str(BIN / "baton-decode"), *worker, f"{here}:{control}", "--data",
                      f"{there}:0", "--no-prefix-cache"]
            self._start("decode", link.inside(*decode) if link else decode)
            self.client = Client(f"http://127.0.0.1:{http}")
            wait_for(self._both_up, "both nodes")
            data = self._said("decode", "prefill nodes dial ")[0]
            self.words_of["decode"] = [data if word == f"{there}:0" else word
                                       for word in self.words_of["decode"]]
        except BaseException:
            self.close()
            raise

    def _start(self, name, words):
        self.words_of[name] = [*words, *map(str, self.options.get(name, ()))]
        self.start(name)

    def start(self, name):
        """Again, with the words of the first time, a decode node at the port it had."""
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                self.words_of[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**clean_environment(), **self.times, **BEHIND_UCX})

    def kill(self, name):
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def _both_up(self):
        if any(process.poll() is not None for process in self.processes.values()):
            raise AssertionError("a program ended before it was ready")
        return len(self.up()) == 2

    def _said(self, name, words):
        text = (self.folder / f"{name}.log").read_text()
        return text.split(words, 1)[1].split() if words in text else None

    def words(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()}"
                         for path in sorted(self.folder.glob("*.log")))

    def workers(self):
        return self.client.get("/workers").json()["workers"]

    def up(self):
        return [worker for worker in self.workers() if worker["state"] == "up"]

    def ask(self, prompt):
        answer = self.client.complete(prompt, max_tokens=16, temperature=0)
        if answer.status != 200:
            if answer.status < 500 or "message" not in answer.json()["error"]:
                raise AssertionError(f"{answer.status}: {answer.body}\n{self.words()}")
            return False
        if answer.json()["choices"][0]["text"] != reference(prompt):
            raise AssertionError(f"wrong text {answer.body}\n{self.words()}")
        return True

    def assert_well(self, prompt):
        """Both nodes are there, the prompt's pages travel, and nothing is held."""
        def moved():
            return sum(worker["handoff"]["bytes"] for worker in self.up()
                       if worker["role"] == "decode")
        wait_for(lambda: len(self.up()) == 2, "both nodes again")
        before = moved()
        wait_for(lambda: self.ask(prompt), "an answer")
        wait_for(lambda: moved() > before, "pages that moved")
        wait_for(lambda: all(worker["pages_free"] == worker["pages_total"] and
                             worker["pages_handoff"] == 0 for worker in self.up()),
                 "all pages to be free again")

    def close(self):
        codes = []
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                codes.append(process.wait(DEADLINE_S))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        words = self.words()
        if self.link:
            self.link.close()
        self.scratch.cleanup()
        if any(codes) or "Sanitizer" in words:
            raise AssertionError(f"ended with {codes}\n{words}")
