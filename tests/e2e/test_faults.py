"""What breaks while requests run: a client leaves, a node dies, the cluster is told to stop."""
import json
import os
import signal
import threading
import unittest

from cluster import Cluster
from processes import DEADLINE_S, wait_for

LONG = {"max_tokens": 1800, "temperature": 0, "ignore_eos": True}


class FaultCase(unittest.TestCase):
    options = ()

    def setUp(self):
        self.cluster = Cluster(options=self.options)
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.client

    def pages_free(self):
        return {worker["name"]: (worker["pages_free"], worker["pages_total"])
                for worker in self.cluster.workers()}

    def decode_node_has_set_pages_aside(self):
        """The router heard of them before this heartbeat, and has asked a prefill node since."""
        free, total = self.pages_free().get("decode-0", (0, 0))
        return free < total

    def assert_pages_come_back(self):
        wait_for(lambda: all(free == total for free, total in self.pages_free().values()),
                 "all pages to be free again")

    def assert_serves(self):
        answer = self.client.chat("Hello", max_tokens=8, temperature=0)
        self.assertEqual(answer.status, 200, answer.body)

    def first_event(self, events):
        iterator = iter(events)
        while True:
            event = next(iterator)
            choice = event["choices"][0] if event["choices"] else {}
            if choice.get("delta", {}).get("content") or choice.get("text"):
                return iterator

    def assert_one_error_event(self, events, iterator):
        """An error event, then the end: no [DONE] and no finish reason."""
        rest = list(iterator)
        self.assertTrue(rest, "the stream ended without an error event")
        self.assertIn("error", rest[-1])
        self.assertGreater(len(rest[-1]["error"]["message"]), 10)
        for event in rest[:-1]:
            self.assertNotIn("error", event)
            for choice in event["choices"]:
                self.assertIsNone(choice.get("finish_reason"))
        self.assertFalse(events.done)


class StreamTest(FaultCase):
    """The decode node that dies or is left takes half a second for each step after the first ones:
    no stream ends by itself before that."""

    options = ("--fault", "decode-0=engine-step:40+:delay")

    def test_client_leaves_a_stream(self):
        events = self.client.chat_stream("Hello", **LONG)
        self.first_event(events)
        wait_for(self.decode_node_has_set_pages_aside, "a heartbeat that tells of its pages")
        events.close()
        self.assert_pages_come_back()
        self.assert_serves()

    def test_decode_node_dies_in_a_stream(self):
        events = self.client.chat_stream("Hello", **LONG)
        iterator = self.first_event(events)
        old = self.cluster.kill("decode-0")
        self.assert_one_error_event(events, iterator)
        self.cluster.wait_back("decode-0", old)
        self.assert_serves()
        self.assert_pages_come_back()

    def test_stop_with_open_streams(self):
        events = self.client.chat_stream("Hello", **LONG)
        iterator = self.first_event(events)
        # stop() checks that no process is left.
        self.assertEqual(self.cluster.stop(), 0)
        rest = list(iterator)
        ended = events.done or (rest and "error" in rest[-1])
        self.assertTrue(ended, f"the stream broke off without a word: {rest[-1:]}")


class FaultTest(FaultCase):
    def test_client_leaves_while_it_waits(self):
        self.cluster.pause("prefill-0")
        connection, _ = self._post_without_reading("/v1/completions", {"prompt": "x" * 400, **LONG})
        wait_for(lambda: self.client.metric("baton_requests_inflight") > 0, "a running request")
        connection.close()
        wait_for(lambda: self.client.metric("baton_requests_inflight") == 0, "no running request")
        self.cluster.resume("prefill-0")
        self.assert_pages_come_back()
        self.assert_serves()

    def _post_without_reading(self, path, body):
        import http.client
        connection = http.client.HTTPConnection(self.client.address, timeout=DEADLINE_S)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.sock

    def test_prefill_node_dies_with_a_request(self):
        self.cluster.pause("prefill-0")
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(self.client.complete("y" * 300, max_tokens=5)))
        thread.start()
        # Killed before it is chosen, it would not be missed: the decode node reads the prompt then.
        wait_for(self.decode_node_has_set_pages_aside, "the prefill node to be asked")
        old = self.cluster.kill("prefill-0")
        thread.join()
        # Before the first token: a plain HTTP error, in the API's own form.
        self.assertGreaterEqual(answers[0].status, 500)
        self.assertIn("message", answers[0].json()["error"])
        self.cluster.wait_back("prefill-0", old)
        self.assert_serves()
        self.assert_pages_come_back()

    def test_decode_node_dies_before_the_first_token(self):
        self.cluster.pause("prefill-0")
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(self.client.complete("z" * 300, max_tokens=5)))
        thread.start()
        wait_for(self.decode_node_has_set_pages_aside, "the decode node to be asked")
        old = self.cluster.kill("decode-0")
        self.cluster.resume("prefill-0")
        thread.join()
        self.assertGreaterEqual(answers[0].status, 500)
        self.cluster.wait_back("decode-0", old)
        self.assert_serves()
        self.assert_pages_come_back()

    def test_each_node_dies_in_turn_under_load(self):
        """Every request ends in exactly one way, whatever is killed meanwhile."""
        ends, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                answer = self.client.complete("w" * 200, max_tokens=30, ignore_eos=True)
                ends.append((answer.status, answer.json()))
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for name in ("prefill-0", "decode-0", "prefill-0"):
            done = len(ends)
            wait_for(lambda done=done: any(status == 200 for status, _ in ends[done:]),
                     "an answer before the kill")
            self.cluster.wait_back(name, self.cluster.kill(name))
        stop.set()
        for thread in threads:
            thread.join()
        for status, body in ends:
            if status == 200:
                self.assertEqual(body["usage"]["completion_tokens"], 30)
            else:
                self.assertGreaterEqual(status, 500)
                self.assertIn("message", body["error"])
        self.assert_serves()
        self.assert_pages_come_back()

    def test_without_decode_node(self):
        """503 with Retry-After while nobody could answer."""
        # The stopped `baton up` cannot start the node again until it may go on.
        os.kill(self.cluster.process.pid, signal.SIGSTOP)
        old = self.cluster.kill("decode-0")
        wait_for(lambda: self.client.get("/health").status == 503, "an unhealthy router")
        answer = self.client.chat("Hello", max_tokens=2)
        self.assertEqual(answer.status, 503, answer.body)
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        os.kill(self.cluster.process.pid, signal.SIGCONT)
        self.cluster.wait_back("decode-0", old)
        self.assert_serves()



if __name__ == "__main__":
    unittest.main(verbosity=2)
