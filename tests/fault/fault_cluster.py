"""A small cluster to which something happens, and what has to be true of every request and after
it: the right text or one clean error; all pages back; the next request served."""
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from cluster import PATIENCE, Cluster, tiny_model
from processes import BATON, DEADLINE_S, Events, all_stopped, is_sanitized, run, wait_for

LONG = bool(os.environ.get("BATON_TEST_LONG"))
ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_TOKENS = 16
# Longer than a stopped peer may go unnoticed: for WORKER_TIMEOUT_MS.
STOPPED_S = 10 if LONG else 4
# A request that lost a message on its way ends by its own deadline.
TIMES = {"BATON_REQUEST_TIMEOUT_MS": "8s", "BATON_RESERVE_TIMEOUT_MS": "2s",
         "BATON_WORKER_TIMEOUT_MS": "3s"}
# Where no message is lost and nobody stopped.
PATIENT = {**PATIENCE, "BATON_REQUEST_TIMEOUT_MS": "100s"}


def fault_table():
    """{point: [action, ...]} as fault.def has it."""
    rows = re.findall(r'FAULT\(\w+, "([\w-]+)", ([A-Z |]+),',
                      (ROOT / "transfer" / "fault.def").read_text())
    return {name: [action.strip().lower() for action in actions.split("|")]
            for name, actions in rows}


_texts = {}


def reference(prompt, max_tokens=MAX_TOKENS):
    """The undisturbed greedy answer."""
    key = (prompt, max_tokens)
    if key not in _texts:
        result = run(BATON, "run", "--model", tiny_model(), "--raw", "--temperature", "0",
                     "--max-tokens", max_tokens, "-", stdin=prompt)
        if result.returncode != 0:
            raise AssertionError(f"baton run: {result.stderr}")
        _texts[key] = result.stdout
    return _texts[key]


def prompts(count, length=150):
    return [f"{i:02d} " + "hands the baton on, " * (length // 20) for i in range(count)]


class Waker(threading.Thread):
    """Continues whoever of the cluster has stopped, STOPPED_S later."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.over, self.since = cluster, threading.Event(), {}

    def run(self):
        while not self.over.wait(0.05):
            try:
                pids = set(self.cluster.pids().values())
            except (FileNotFoundError, json.JSONDecodeError):
                continue
            now = time.monotonic()
            for pid in pids:
                if not all_stopped(pid):
                    self.since.pop(pid, None)
                elif now - self.since.setdefault(pid, now) > STOPPED_S:
                    os.kill(pid, signal.SIGCONT)


class FaultCluster:
    """Deadlines are TIMES where env has no others."""

    def __init__(self, *options, prefill=1, decode=1, env=None):
        self.cluster = Cluster(prefill=prefill, decode=decode, options=options,
                               env={**TIMES, **(env or {})})
        self.client = self.cluster.client
        self.waker = Waker(self.cluster)
        self.waker.start()

    def close(self):
        self.waker.over.set()
        self.waker.join()
        self.cluster.close()

    def log(self, name):
        return (self.cluster.work / f"{name}.log").read_text()

    def fired(self, name, point):
        """The actions that were carried out there, in their order."""
        return re.findall(rf"fault fired: (\w+) at passage \d+ of {point}\n", self.log(name))

    def ask(self, prompt, stream, max_tokens=MAX_TOKENS):
        """One request to its end; True when it was answered. Whatever else than the right text or
        one clean error comes is a failed test."""
        fields = {"max_tokens": max_tokens, "temperature": 0}
        answer = self._stream(prompt, fields) if stream else self._whole(prompt, fields)
        if answer is None:
            return False
        expected = reference(prompt, max_tokens)
        if answer != expected:
            raise AssertionError(f"{prompt[:20]!r}: {answer!r} is not {expected!r}\n"
                                 f"{self.cluster.words()}")
        return True

    def _whole(self, prompt, fields):
        answer = self.client.complete(prompt, **fields)
        body = answer.json()
        if answer.status == 200:
            return body["choices"][0]["text"]
        self._check_error(answer.status, body)
        return None

    def _check_error(self, status, body):
        if status < 500 or len(body["error"]["message"]) < 10:
            raise AssertionError(f"status {status}: {body}\n{self.cluster.words()}")

    def _stream(self, prompt, fields):
        connection, response = self.client._send(
            "POST", "/v1/completions", {"prompt": prompt, **fields, "stream": True}, None)
        if response.status != 200:
            body = json.loads(response.read())
            connection.close()
            self._check_error(response.status, body)
            return None
        events, text, error = Events(connection, response), "", None
        for event in events:
            if error:
                raise AssertionError(f"{event} came after the error {error}")
            error = event.get("error")
            for choice in event.get("choices", ()):
                text += choice.get("text") or ""
        if error and events.done:
            raise AssertionError(f"a stream ended with [DONE] after {error}")
        if not error and not events.done:
            raise AssertionError(f"a stream broke off without a word\n{self.cluster.words()}")
        if error and not reference(prompt, fields["max_tokens"]).startswith(text):
            raise AssertionError(f"a broken stream had other text: {text!r}")
        return None if error else text

    def wait_up(self, names):
        wait_for(lambda: {worker["name"] for worker in self.cluster.workers()} == set(names),
                 f"{names} to be up")

    def wait_whole(self, names):
        """All nodes are up and hold nothing."""
        def whole():
            workers = {worker["name"]: worker for worker in self.cluster.workers()}
            return set(workers) == set(names) and all(
                worker["pages_free"] == worker["pages_total"] and worker["pages_handoff"] == 0 and
                worker["running"] == worker["waiting"] == 0 for worker in workers.values())
        wait_for(whole, f"all pages of {names} to be free again")

    def assert_serves(self, names):
        """Two nodes that lost each other rest before they dial again: a few may fail first."""
        self.wait_whole(names)
        prompt = prompts(1)[0]
        wait_for(lambda: self.ask(prompt, False), "an answer")
        if not self.ask(prompt, True):
            raise AssertionError(f"no answer after an answer\n{self.cluster.words()}")
        self.wait_whole(names)
