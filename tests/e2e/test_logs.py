"""What of prompts and answers is in the logs: nothing, unless it is asked for."""
import re
import unittest

from cluster import Cluster
from processes import wait_for

SECRET = "swordfish"


def speak(cluster):
    """One request that is answered and one that is refused; both hold the word."""
    answer = cluster.client.call(
        "POST", "/v1/chat/completions",
        {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 4},
        {"X-Request-Id": "told"})
    assert answer.status == 200, answer.body
    answer = cluster.client.call(
        "POST", "/v1/completions", {"prompt": SECRET, "temperature": 9},
        {"X-Request-Id": "refused"})
    assert answer.status == 400, answer.body


class LogsTest(unittest.TestCase):
    def start(self, **env):
        cluster = Cluster(env={"BATON_LOG": "debug", **env})
        self.addCleanup(cluster.close)
        speak(cluster)
        # The last line about a request is written when it ends.
        wait_for(lambda: all(f"client_id={name}" in cluster.words()
                             for name in ("told", "refused")), "both requests in the log")
        return cluster

    def lines(self, cluster, name):
        return [line for line in (cluster.work / "router.log").read_text().splitlines()
                if f"client_id={name}" in line]

    def test_nothing_by_default(self):
        self.assertNotIn(SECRET, self.start().words())

    def test_one_trace_through_all_processes(self):
        trace = "0af7651916cd43dd8448eb211c80319c"
        cluster = self.start()
        answer = cluster.client.call(
            "POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 4, "ignore_eos": True},
            {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "X-Request-Id": "traced"})
        self.assertEqual(answer.status, 200)
        requests = set()
        for name in ("router", "prefill-0", "decode-0"):
            log = cluster.work / f"{name}.log"
            found = wait_for(lambda: re.findall(rf"request=([0-9a-f]{{16}}).* trace_id={trace}",
                                                log.read_text()), f"the trace in {name}.log")
            requests |= set(found)
        self.assertEqual(len(requests), 1, requests)

    def test_errors_only(self):
        cluster = self.start(BATON_LOG_TEXT="errors")
        wait_for(lambda: any("answer: " in line for line in self.lines(cluster, "refused")),
                 "the text of what was refused")
        self.assertTrue(any(SECRET in line for line in self.lines(cluster, "refused")))
        self.assertFalse(any(SECRET in line for line in self.lines(cluster, "told")))

    def test_all(self):
        cluster = self.start(BATON_LOG_TEXT="all")
        for name in ("told", "refused"):
            wait_for(lambda: any("answer: " in line for line in self.lines(cluster, name)),
                     "the text of all")
            self.assertTrue(any(SECRET in line for line in self.lines(cluster, name)))

    def test_streamed_or_whole_it_is_the_same(self):
        """Choices that come side by side, text that waits for a stop string, marks of calls that
        nobody is told."""
        cluster = Cluster(env={"BATON_LOG": "debug", "BATON_LOG_TEXT": "all"})
        self.addCleanup(cluster.close)
        call = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
            "additionalProperties": False}}}
        chat = {"messages": [{"role": "user", "content": "Hello"}]}
        wishes = (
            ("/v1/completions", {"prompt": "Hello", "n": 3, "seed": 7, "max_tokens": 12,
                                 "ignore_eos": True, "echo": True}),
            ("/v1/completions", {"prompt": "Hello", "seed": 7, "max_tokens": 12, "temperature": 1,
                                 "ignore_eos": True, "stop": ["e" * 50, " " * 50]}),
            ("/v1/completions", {"prompt": "Hello", "max_tokens": 0, "echo": True}),
            ("/v1/chat/completions", {**chat, "seed": 7, "tools": [call], "max_tokens": 60,
                                      "tool_choice": "required"}))
        for number, (path, wish) in enumerate(wishes):
            logged = []
            for stream in (False, True):
                name = f"{'streamed' if stream else 'whole'}-{number}"
                answer = cluster.client.call("POST", path, {**wish, "stream": stream},
                                             {"X-Request-Id": name})
                self.assertEqual(answer.status, 200, answer.body)
                lines = wait_for(lambda: [line for line in self.lines(cluster, name)
                                          if "answer: " in line], f"the answer of {name}")
                logged.append(lines[0].split("answer: ", 1)[1].split(" request=")[0])
            self.assertTrue(logged[0])
            self.assertEqual(logged[0], logged[1], wish)


if __name__ == "__main__":
    unittest.main()
