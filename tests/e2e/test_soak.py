"""Many requests, some cut off by their clients: every whole answer is right, and nothing stays
behind: no page, no gauge, no descriptor, no memory."""
import concurrent.futures
import json
import os
import pathlib
import random
import socket
import unittest

from cluster import Cluster
from processes import DEADLINE_S, is_sanitized, wait_for

LONG = bool(os.environ.get("BATON_TEST_LONG"))
REQUESTS = 10000 if LONG else 800
CONCURRENCY = 64
CANCELED_OF_TEN = 1
PROMPTS = ("", "a", "the baton " * 6 + "goes", "x" * 64, "hand it on, " * 15, "relay " * 40)
ANSWERS = (1, 2, 7, 60, 200)
# What the allocators of that many threads and connections may still be short of once all kinds of
# requests have been seen.
GROWTH_BYTES = 8 << 20


def memory_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} tells no RssAnon")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class SoakCases:
    """More sequences than places in a step, and little more pages than one longest sequence takes:
    what runs has to give way to what came before it."""

    layout = {}
    # The first step takes long enough for a crowd to be there in the second.
    options = ("--max-batch", "16", "--kv-memory", "2M", "--fault", "decode-0=engine-step:1:delay")

    def setUp(self):
        # One arena: how many there are, and how full, depends on which threads met.
        self.cluster = Cluster(options=self.options, **self.layout,
                               env={"BATON_PAGE_TOKENS": "16", "MALLOC_ARENA_MAX": "1"})
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.client
        self.answers = {}

    def ask(self, index):
        """True when the answer was read to its end."""
        chance = random.Random(index)
        prompt = f"{index % 3}{chance.choice(PROMPTS)}"
        fields = {"prompt": prompt, "max_tokens": chance.choice(ANSWERS), "temperature": 0.9,
                  "seed": index % 2, "stream": index % 2 == 0}
        if chance.randrange(10) < CANCELED_OF_TEN:
            self.cancel(fields, chance)
            return False
        answer = self.client.post("/v1/completions", fields)
        if answer.status != 200:
            raise AssertionError(f"status {answer.status}: {answer.body!r}\n{self.cluster.words()}")
        text = self.stream_text(answer.body) if fields["stream"] else \
            answer.json()["choices"][0]["text"]
        key = json.dumps([prompt, fields["max_tokens"], fields["seed"]])
        # The first one to come stands for all: whatever ran beside them, they are the same.
        if self.answers.setdefault(key, text) != text:
            raise AssertionError(f"{key}: {text!r} is not {self.answers[key]!r}")
        return True

    def stream_text(self, body):
        if not body.endswith(b"data: [DONE]\n\n"):
            raise AssertionError(f"a stream ended with {body[-200:]!r}")
        text = ""
        for line in body.split(b"\n"):
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:]).get("choices", ()):
                    text += choice.get("text") or ""
        return text

    def cancel(self, fields, chance):
        """Goes away before, during or after the first bytes of the answer."""
        body = json.dumps(fields).encode()
        host, port = self.client.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: soak\r\n"
                               b"Content-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            if chance.randrange(2):
                connection.recv(chance.choice((1, 200, 2000)))

    def run_requests(self, first, count):
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            return sum(pool.map(self.ask, range(first, first + count)))

    def wait_whole(self):
        def whole():
            workers = self.cluster.workers()
            return len(workers) == self.workers and all(
                worker["pages_free"] == worker["pages_total"] and worker["pages_handoff"] == 0 and
                worker["running"] == worker["waiting"] == 0 for worker in workers)
        wait_for(whole, "all workers to be idle and their pages free")

    def sizes(self):
        pids = self.cluster.pids()
        return {name: (descriptors(pid), memory_bytes(pid)) for name, pid in pids.items()}

    def test_nothing_stays_behind(self):
        warm = REQUESTS // 4
        done = self.run_requests(0, warm)
        self.wait_whole()
        before = self.sizes()
        done += self.run_requests(warm, REQUESTS - warm)
        self.wait_whole()
        # Connections that the server has yet to close are descriptors as well.
        wait_for(lambda: all(self.sizes()[name][0] <= before[name][0] for name in before),
                 "descriptors to be as few as before")
        after = self.sizes()
        for name, (_, memory) in after.items():
            if not is_sanitized():
                self.assertLess(memory - before[name][1], GROWTH_BYTES, name)
        self.assertGreater(done, REQUESTS * 8 // 10)
        self.assertEqual(self.client.metric("baton_requests_inflight"), 0)
        self.assertEqual(self.client.metric("baton_handoffs_open"), 0)
        self.assertGreater(self.client.metric("baton_preemptions_total"), 0)


class Apart(SoakCases, unittest.TestCase):
    layout, workers = {"prefill": 1, "decode": 2}, 3


class InOneNode(SoakCases, unittest.TestCase):
    layout, workers = {"prefill": 0, "decode": 1}, 1


if __name__ == "__main__":
    unittest.main(verbosity=2)
