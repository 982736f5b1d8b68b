"""What serving apart got wrong elsewhere: the same prompt again, ids used twice, aborts in the
middle, nodes that go away politely or not, and thousands of hand-offs. Texts are those of one
process, always."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import threading
import unittest

from fault_cluster import LONG, PATIENT, FaultCluster, prompts, reference, run, tiny_model, wait_for
from fault_cluster import BATON, DEADLINE_S, is_sanitized

NAMES = ("prefill-0", "decode-0")
LONG_ANSWER = 1200


def text_of_tokens(count):
    """A text of exactly so many tokens."""
    length = count
    for _ in range(100):
        text = ("The relay runner hands the baton on, 4x100 m; " * (length // 40 + 1))[:length]
        found = len(json.loads(run(BATON, "tokenize", "--model", tiny_model(), stdin=text).stdout))
        if found == count:
            return text
        length += (count - found) or 1
    raise AssertionError(f"no text of {count} tokens was found")


class Cases(unittest.TestCase):
    def start(self, *options, env=None, **named):
        cluster = FaultCluster(*options, env={**PATIENT, **(env or {})}, **named)
        self.addCleanup(cluster.close)
        return cluster

    def answer(self, cluster, prompt, **fields):
        answer = cluster.client.complete(prompt, temperature=0, **fields)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    def test_the_same_prompt_again_at_the_edges_of_a_page(self):
        cluster = self.start()
        for count in (1, 2, 63, 64, 65, 127, 128, 129):
            prompt = text_of_tokens(count)
            for again in range(3):
                with self.subTest(tokens=count, again=again):
                    self.assertTrue(cluster.ask(prompt, again == 1))
        cluster.wait_whole(NAMES)

    def test_a_prompt_over_the_limit_is_the_clients_error(self):
        cluster = self.start("--context", "256")
        for count in (257, 300, 2000):
            refused = cluster.client.complete(text_of_tokens(count), max_tokens=4)
            self.assertEqual(refused.status, 400, refused.body)
            message = refused.json()["error"]["message"]
            self.assertIn(str(count), message)
            self.assertIn("256", message)
        cluster.assert_serves(NAMES)

    def test_an_answer_that_ends_with_its_first_token(self):
        cluster = self.start()
        prompt = prompts(1)[0]
        for _ in range(3):
            body = self.answer(cluster, prompt, max_tokens=1)
            self.assertEqual(body["choices"][0]["text"], reference(prompt, 1))
        self.assertEqual(cluster.client.metric("baton_placements_total", reason="one_token"), 3)
        cluster.assert_serves(NAMES)

    def test_one_request_id_used_by_many_at_once(self):
        cluster = self.start()

        def ask(prompt):
            return cluster.client.call(
                "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 16, "temperature": 0},
                {"X-Request-Id": "the-same-for-all"})
        texts = prompts(8)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for prompt, answer in zip(texts, pool.map(ask, texts)):
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json()["choices"][0]["text"], reference(prompt))
        cluster.wait_whole(NAMES)
        self.assertEqual(cluster.client.metric("baton_requests_inflight"), 0)

    def test_many_at_once_stay_apart(self):
        cluster = self.start(prefill=2, decode=2)
        texts = [prompt for prompt in prompts(12) for _ in range(2)]
        with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
            ends = list(pool.map(lambda item: cluster.ask(item[1], item[0] % 2 == 0),
                                 enumerate(texts)))
        self.assertEqual(ends, [True] * len(texts))
        cluster.wait_whole(("prefill-0", "prefill-1", "decode-0", "decode-1"))

    def test_a_client_leaves_while_its_pages_move(self):
        """The pages of the one that left must not be the next one's before the writer let go."""
        faults = ",".join(f"data-send:{i}:delay" for i in range(1, 9))
        cluster = self.start("--fault", f"prefill-0={faults}", "--kv-memory", "1M",
                             "--context", "512")
        for i in range(4):
            connection = http.client.HTTPConnection(cluster.client.address, timeout=DEADLINE_S)
            connection.request("POST", "/v1/completions",
                               json.dumps({"prompt": prompts(4)[i], "max_tokens": 200}),
                               {"Content-Type": "application/json"})
            wait_for(lambda i=i: len(cluster.fired("prefill-0", "data-send")) > 2 * i,
                     "data on its way")
            connection.close()
            wait_for(lambda i=i: cluster.ask(prompts(8)[4 + i], False), "an answer")
        cluster.assert_serves(NAMES)

    def stream_begun(self, cluster, prompt):
        """A long stream after its first text; ends in the list that is returned."""
        began, ends = threading.Event(), []

        def read():
            events = cluster.client.complete_stream(prompt, max_tokens=LONG_ANSWER, temperature=0)
            text = ""
            for event in events:
                if "error" in event:
                    ends.append((text, event["error"]))
                    return
                for choice in event["choices"]:
                    text += choice.get("text") or ""
                if text:
                    began.set()
            ends.append((text, None if events.done else "broke off"))
        thread = threading.Thread(target=read)
        thread.start()
        self.assertTrue(began.wait(DEADLINE_S))
        return thread, ends

    def test_answers_go_on_when_the_prefill_node_dies(self):
        cluster = self.start()
        prompt = prompts(1)[0]
        thread, ends = self.stream_begun(cluster, prompt)
        old = cluster.cluster.kill("prefill-0")
        thread.join()
        self.assertEqual(ends, [(reference(prompt, LONG_ANSWER), None)])
        cluster.cluster.wait_back("prefill-0", old)
        cluster.assert_serves(NAMES)

    def drain(self, name, decode):
        """SIGTERM: what runs there ends well, what comes goes elsewhere, the exit is clean."""
        cluster = self.start(decode=decode, env={"BATON_DRAIN_MS": "100s"})
        texts = prompts(4)
        begun = [self.stream_begun(cluster, prompt) for prompt in texts]
        old = cluster.cluster.pids()[name]
        os.kill(old, signal.SIGTERM)
        wait_for(lambda: f"{name} takes no more requests" in cluster.log("router"),
                 "the router to hear of it")
        for prompt in texts:
            self.assertTrue(cluster.ask(prompt, False))
        for prompt, (thread, ends) in zip(texts, begun):
            thread.join()
            self.assertEqual(ends, [(reference(prompt, LONG_ANSWER), None)])
        wait_for(lambda: cluster.cluster.pids().get(name, old) != old, f"a new {name}")
        self.assertIn(f"{name} exited with code 0", cluster.cluster.words())
        self.assertIn("asked to stop", cluster.log(name))
        self.assertNotIn("are cancelled", cluster.log(name))

    def test_a_decode_node_is_drained(self):
        self.drain("decode-0", 2)

    def test_a_prefill_node_is_drained(self):
        self.drain("prefill-0", 1)

    def test_nobody_sees_a_rolling_restart(self):
        """One decode node after the other is asked to stop, and comes back, while requests come
        without a break: all are answered, as if nothing were."""
        cluster = self.start(decode=2, env={"BATON_DRAIN_MS": "100s"})
        texts, over, ends = prompts(4), threading.Event(), []

        def ask_on(prompt):
            while not over.is_set():
                ends.append(cluster.ask(prompt, len(ends) % 2 == 0))

        threads = [threading.Thread(target=ask_on, args=(prompt,)) for prompt in texts]
        for thread in threads:
            thread.start()
        for _ in range(4 if LONG else 1):
            for name in ("decode-0", "decode-1"):
                old, count = cluster.cluster.pids()[name], len(ends)
                os.kill(old, signal.SIGTERM)
                cluster.cluster.wait_back(name, old)
                wait_for(lambda: len(cluster.cluster.workers()) == 3, "all workers")
                wait_for(lambda count=count: len(ends) > count + 4, "more answers")
        over.set()
        for thread in threads:
            thread.join()
        self.assertTrue(all(ends))

    def usage_of(self, pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        rss_kib = int(status.split("VmRSS:")[1].split()[0])
        return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())), rss_kib

    def test_many_hand_offs_leave_nothing_behind(self):
        """Descriptors and memory after n, 2n and 3n: they do not grow from the second on."""
        hand_offs = 10000 if LONG else 600
        cluster = self.start(env={"MALLOC_ARENA_MAX": "1"})
        texts = prompts(6)
        usages = []
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for _ in range(3):
                ends = list(pool.map(lambda i: cluster.ask(texts[i % 6], False),
                                     range(hand_offs // 3)))
                self.assertTrue(all(ends))
                cluster.wait_whole(NAMES)
                usages.append({name: self.usage_of(pid)
                               for name, pid in cluster.cluster.pids().items()})
        for name in usages[0]:
            (_, _), (fds, rss_kib), (fds_later, rss_kib_later) = (usage[name] for usage in usages)
            if not is_sanitized():
                self.assertLess(rss_kib_later, rss_kib * 1.1 + 2048, name)
            pid = cluster.cluster.pids()[name]  # clients that left may still be noticed
            wait_for(lambda pid=pid, fds=fds: self.usage_of(pid)[0] <= fds,
                     f"{fds} descriptors of {name} again, not {fds_later}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
