"""Pages damaged on their way: never a wrong answer, made once more, then one clean error."""
import unittest

from cluster import Cluster
from processes import chat_text, stream_text, wait_for

ASKED = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
PROMPT = "One page is not enough for this prompt. " * 8


class DamageTest(unittest.TestCase):
    def start(self, *faults):
        options = [word for fault in faults for word in ("--fault", fault)]
        cluster = Cluster(options=options)
        self.addCleanup(cluster.close)
        return cluster

    def damaged(self, cluster):
        return cluster.client.metric("baton_handoffs_damaged_total")

    def text(self, cluster, stream):
        if not stream:
            answer = cluster.client.chat(PROMPT, **ASKED)
            self.assertEqual(answer.status, 200, answer.body)
            return chat_text(answer)
        events = cluster.client.chat_stream(PROMPT, **ASKED)
        text = stream_text(events)
        self.assertTrue(events.done)
        return text

    def test_the_client_does_not_notice(self):
        undisturbed = self.text(self.start(), False)
        for fault in ("decode-0=data-receive:1:corrupt", "prefill-0=data-send:1:corrupt"):
            for stream in (False, True):
                with self.subTest(fault=fault, stream=stream):
                    cluster = self.start(fault)
                    self.assertEqual(self.text(cluster, stream), undisturbed)
                    self.assertEqual(self.damaged(cluster), 1)
                    self.assertEqual(self.text(cluster, stream), undisturbed)
                    wait_for(lambda: all(worker["pages_free"] == worker["pages_total"]
                                         for worker in cluster.workers()),
                             "all pages to be free again")

    def test_several_choices_do_not_notice_either(self):
        """All of them are made once more; what the client has of each is not sent again."""
        asked = {"max_tokens": 40, "temperature": 1.2, "seed": 9, "n": 4, "ignore_eos": True,
                 "stop": ["e"]}

        def texts(cluster):
            whole = ["", "", "", ""]
            events = cluster.client.chat_stream(PROMPT, **asked)
            for chunk in events:
                for choice in chunk["choices"]:
                    whole[choice["index"]] += choice["delta"].get("content") or ""
            self.assertTrue(events.done)
            return whole
        undisturbed = texts(self.start())
        for fault in ("decode-0=data-receive:1:corrupt", "prefill-0=data-send:1:corrupt"):
            with self.subTest(fault=fault):
                cluster = self.start(fault)
                self.assertEqual(texts(cluster), undisturbed)
                self.assertEqual(self.damaged(cluster), 1)
                wait_for(lambda: all(worker["pages_free"] == worker["pages_total"]
                                     for worker in cluster.workers()),
                         "all pages to be free again")

    def test_status_and_metrics_tell_of_it(self):
        cluster = self.start("decode-0=data-receive:1:corrupt")
        metric = cluster.client.metric
        self.text(cluster, False)
        self.text(cluster, True)
        wait_for(lambda: metric("baton_handoffs_total", role="decode", outcome="landed") == 2 and
                 metric("baton_handoffs_total", role="prefill", outcome="landed") == 2,
                 "the heartbeats to tell of two hand-offs")
        for role in ("prefill", "decode"):
            # The router may cancel at the prefill node before the decode node's word is there.
            self.assertEqual(metric("baton_handoffs_total", role=role, outcome="corrupt") +
                             metric("baton_handoffs_total", role=role, outcome="canceled"), 1)
            self.assertGreater(metric("baton_handoff_busy_seconds_total", role=role), 0)
            self.assertGreater(metric("baton_handoff_moved_bytes_total", role=role), 0)
            self.assertEqual(metric("baton_handoffs_open", role=role), 0)
            self.assertEqual(metric("baton_handoff_oldest_seconds", role=role), 0)
        self.assertEqual(metric("vllm:nixl_num_failed_transfers_total"),
                         metric("baton_handoffs_total", role="decode", outcome="corrupt"))
        self.assertEqual(metric("baton_handoff_checksum_faults_total"), 1)
        self.assertEqual(metric("baton_handoff_queue_bytes"), 0)
        for worker in cluster.workers():
            handoff = worker["handoff"]
            self.assertEqual(handoff["corrupt"] + handoff["canceled"], 1)
            self.assertEqual((handoff["landed"], handoff["open"]), (2, 0))
            self.assertGreater(handoff["gb_per_s"], 0)
            (peer,) = handoff["peers"]
            self.assertEqual(peer["node"], {"prefill-0": "decode-0",
                                            "decode-0": "prefill-0"}[worker["name"]])
            self.assertEqual((peer["state"], peer["landed"], peer["failed"]), ("open", 2, 1))
            self.assertGreater(peer["bytes"], 0)

    def test_damage_that_goes_on_is_one_clean_error(self):
        cluster = self.start("decode-0=data-receive:1+:corrupt")
        answer = cluster.client.chat(PROMPT, **ASKED)
        self.assertEqual(answer.status, 500, answer.body)
        self.assertIn("checksum", answer.json()["error"]["message"])
        # An error event behind the first token, or the status when that was not out yet.
        answer = cluster.client.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": PROMPT}], "stream": True, **ASKED})
        self.assertIn(answer.status, (200, 500))
        self.assertIn(b"checksum", answer.body)
        self.assertNotIn(b"[DONE]", answer.body)
        self.assertEqual(self.damaged(cluster), 4)


if __name__ == "__main__":
    unittest.main()
