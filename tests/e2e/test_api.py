"""The HTTP API over a whole cluster: shapes, limits, numbers. The router's own tests have the table
of bad requests; here are those that need real tokens behind them."""
import json
import math
import unittest

from cluster import Cluster, tiny_model
from processes import BATON, chat_text, run, stream_text, wait_for


class ApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.client = cls.cluster.client

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def ids_of(self, text):
        return json.loads(run(BATON, "tokenize", "--model", self.cluster.model, stdin=text).stdout)

    def test_health_and_models(self):
        health = self.client.get("/health")
        self.assertEqual((health.status, health.json()["status"]), (200, "ok"))
        models = self.client.get("/v1/models").json()
        self.assertEqual(models["object"], "list")
        model, = models["data"]
        self.assertGreater(model["max_model_len"], 0)
        named = self.client.chat("x", model=model["id"], max_tokens=1)
        self.assertEqual((named.status, named.json()["model"]), (200, model["id"]))
        self.assertEqual(self.client.chat("x", model="another", max_tokens=1).status, 404)

    def test_chat_shape(self):
        answer = self.client.chat("Hello", max_tokens=5, temperature=0, ignore_eos=True)
        self.assertEqual(answer.status, 200, answer.body)
        body = answer.json()
        self.assertEqual(body["object"], "chat.completion")
        self.assertTrue(body["id"].startswith("chatcmpl-"))
        choice, = body["choices"]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(choice["finish_reason"], "length")
        usage = body["usage"]
        self.assertEqual(usage["completion_tokens"], 5)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 5)

    def test_completion_counts_its_prompt(self):
        prompt = "Four runners, one baton."
        body = self.client.complete(prompt, max_tokens=3, temperature=0, ignore_eos=True).json()
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["usage"]["prompt_tokens"], len(self.ids_of(prompt)))
        self.assertEqual(body["usage"]["completion_tokens"], 3)

    def test_salts_part_prefix_caches(self):
        prompt = "The runners stand in a long line and wait for the baton. " * 8
        def cached(**fields):
            answer = self.client.complete(prompt, max_tokens=3, temperature=0, ignore_eos=True,
                                          **fields).json()
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"], \
                answer["choices"][0]["text"]
        first, text = cached()
        again, same = cached()
        self.assertGreater(again, first)
        self.assertEqual(text, same)
        self.assertEqual(cached(cache_salt="tenant one"), (0, text))
        self.assertEqual(cached(cache_salt="tenant one"), (again, text))
        self.assertEqual(cached(cache_salt="tenant two"), (0, text))

    def test_several_answers_say_what_was_cached(self):
        prompt = "A baton goes from hand to hand until the race is over. " * 8
        fields = {"max_tokens": 4, "temperature": 1, "ignore_eos": True, "n": 3}
        self.client.complete(prompt, **fields)
        usage = self.client.complete(prompt, **fields).json()["usage"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertLess(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"])

    def test_a_final_message_goes_on(self):
        """The answer is cut in two: the second half is the same when the first is given."""
        fields = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
        messages = [{"role": "user", "content": "Hello"}]
        whole = self.client.post("/v1/chat/completions",
                                 {"messages": messages, "max_tokens": 8, **fields}).json()
        ids, prompt = whole["choices"][0]["token_ids"], whole["prompt_token_ids"]
        rest = self.client.post("/v1/completions", {"prompt": prompt + ids[:4], "max_tokens": 4,
                                                    **fields}).json()
        self.assertEqual(rest["choices"][0]["token_ids"], ids[4:])
        self.assertEqual(rest["choices"][0]["prompt_token_ids"], prompt + ids[:4])
        messages.append({"role": "assistant", "content": "So"})
        going_on = self.client.post(
            "/v1/chat/completions",
            {"messages": messages, "continue_final_message": True, "add_generation_prompt": False,
             "max_tokens": 4, "echo": True, **fields}).json()
        self.assertEqual(going_on["prompt_token_ids"], prompt + self.ids_of("So"))
        self.assertTrue(going_on["choices"][0]["message"]["content"].startswith("So"))

    def test_stream_shape(self):
        events = self.client.chat_stream("Hello", max_tokens=6, temperature=0, ignore_eos=True,
                                         stream_options={"include_usage": True})
        chunks = list(events)
        self.assertTrue(events.done)
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 6)
        reasons = [chunk["choices"][0].get("finish_reason") for chunk in chunks[:-1]]
        self.assertEqual([reason for reason in reasons if reason], ["length"])
        self.assertEqual(reasons[-1], "length")

    def test_stop_string_cuts_the_answer(self):
        whole = self.client.complete("baton", max_tokens=40, temperature=0,
                                     ignore_eos=True).json()["choices"][0]["text"]
        stop = whole[len(whole) // 2:len(whole) // 2 + 3]
        for stream in (False, True):
            with self.subTest(stream=stream):
                fields = {"max_tokens": 40, "temperature": 0, "ignore_eos": True, "stop": [stop]}
                if stream:
                    text = stream_text(self.client.complete_stream("baton", **fields))
                else:
                    choice = self.client.complete("baton", **fields).json()["choices"][0]
                    text = choice["text"]
                    self.assertEqual(choice["finish_reason"], "stop")
                self.assertEqual(text, whole[:whole.index(stop)])

    def test_completion_logprobs(self):
        answer = self.client.complete("baton", max_tokens=4, temperature=0, logprobs=3,
                                      ignore_eos=True).json()
        logprobs = answer["choices"][0]["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), 4)
        for own, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertLessEqual(own, 0)
            # Greedy: the token taken is the likeliest.
            self.assertAlmostEqual(own, max(top.values()), places=5)
            self.assertLessEqual(sum(math.exp(value) for value in top.values()), 1.0001)

    def test_chat_logprobs(self):
        fields = {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2,
                  "ignore_eos": True}
        content = self.client.chat("baton", **fields).json()["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 4)
        for entry in content:
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertAlmostEqual(entry["logprob"], entry["top_logprobs"][0]["logprob"], places=5)
            # The bytes are the token's own; a token of half a character has no text of its own.
            text = bytes(entry["bytes"]).decode("utf-8", "replace")
            self.assertEqual(text, entry["token"])
        streamed = []
        for chunk in self.client.chat_stream("baton", **fields):
            for choice in chunk["choices"]:
                streamed += (choice.get("logprobs") or {}).get("content") or []
        self.assertEqual(streamed, content)

    def test_timings(self):
        text = "x" * 500
        answer = self.client.chat(text, max_tokens=8, temperature=0, ignore_eos=True, timings=True)
        timings = answer.json()["timings"]
        self.assertGreater(timings["handoff_bytes"], 0)
        for name in ("queue_ms", "prefill_ms", "handoff_ms", "handoff_wait_ms", "decode_queue_ms",
                     "first_step_ms", "decode_ms", "ttft_ms"):
            self.assertGreaterEqual(timings[name], 0, name)
        self.assertNotIn("timings", self.client.chat("x", max_tokens=2).json())

    def assert_refused(self, answer, status, param, words):
        self.assertEqual(answer.status, status, answer.body)
        error = answer.json()["error"]
        self.assertIn(words, error["message"])
        self.assertEqual(error["param"], param)
        return error

    def test_bad_requests(self):
        cases = (
            ({"messages": "Hello"}, "messages"),
            ({"messages": [{"role": "user", "content": "x"}], "temperature": 3}, "temperature"),
            ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "max_tokens"),
            ({"messages": [{"role": "user", "content": "x"}], "top_p": 1.5}, "top_p"),
            ({"messages": [{"role": "user", "content": "x"}], "logit_bias": {"191222": -100}},
             "logit_bias"),
            ({"messages": [{"role": "user", "content": "x"}], "repetition_penalty": 0},
             "repetition_penalty"),
            ({"messages": [{"role": "user", "content": "x"}], "stop_token_ids": [151645]},
             "stop_token_ids"),
        )
        for body, param in cases:
            with self.subTest(param=param):
                self.assert_refused(self.client.post("/v1/chat/completions", body), 400, param,
                                    param)
        self.assertEqual(self.client.post("/v1/chat/completions", "{:").status, 400)
        self.assertEqual(self.client.get("/v1/chat/completions").status, 405)
        self.assertEqual(self.client.get("/nothing/here").status, 404)

    def test_ids_out_of_range(self):
        for ids in ([-1], [10 ** 9], [0, 5279552648203111001]):
            with self.subTest(ids=ids):
                self.assertEqual(self.client.complete(ids, max_tokens=1).status, 400)

    def test_context(self):
        context = self.client.get("/v1/models").json()["data"][0]["max_model_len"]
        ids = self.ids_of("a b c d e f g h ")
        over = (ids * context)[:context]
        answer = self.client.complete(over, max_tokens=1)
        self.assertEqual(answer.status, 400)
        error = answer.json()["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn(f"maximum context length is {context} tokens", error["message"])
        # One less leaves room for one token, however many are wanted.
        body = self.client.complete(over[:-1], max_tokens=50, ignore_eos=True).json()
        self.assertEqual(body["usage"]["completion_tokens"], 1)
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_metrics_count(self):
        before = self.client.metric("baton_prompt_tokens_total")
        body = self.client.complete("count these", max_tokens=2).json()
        after = self.client.metric("baton_prompt_tokens_total")
        self.assertEqual(after - before, body["usage"]["prompt_tokens"])

    def test_known_beginnings_are_not_computed_again(self):
        prompt = "What is known need not be read again. " * 12
        before = self.client.metric("baton_prefix_hit_tokens_total")
        bodies = [self.client.complete(prompt + end, max_tokens=4, temperature=0,
                                       ignore_eos=True).json() for end in ("", "", "And so on.")]
        usages = [body["usage"] for body in bodies]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        self.assertEqual(cached[0], 0)
        for usage, count in zip(usages[1:], cached[1:]):
            self.assertGreater(count, usage["prompt_tokens"] - 128)
            self.assertLess(count, usage["prompt_tokens"])
        self.assertEqual(bodies[0]["choices"][0]["text"], bodies[1]["choices"][0]["text"])
        wait_for(lambda: self.client.metric("baton_prefix_hit_tokens_total") - before >= cached[1],
                 "the count of tokens that were known")

        def total(name):
            return sum(worker["prefix"][name] for worker in self.cluster.workers())
        wait_for(lambda: total("hits") >= 2, "the count of prompts that were known")
        wait_for(lambda: total("pages") > 0, "the count of pages that are known")

    def test_workers(self):
        workers = {worker["name"]: worker for worker in self.cluster.workers()}
        self.assertEqual(set(workers), {"prefill-0", "decode-0"})
        self.assertEqual(workers["decode-0"]["role"], "decode")

    def test_ask(self):
        result = run(BATON, "ask", "--url", self.cluster.url, "--max-tokens", "12", "Hello")
        self.assertEqual(result.returncode, 0, result.stderr)
        expected = self.client.chat("Hello", max_tokens=12, temperature=0)
        self.assertEqual(result.stdout, chat_text(expected) + "\n")
        # No speed: a router that was kept from its CPU may see all tokens at once.
        for words in ("router queue", "prefill", "hand-off", "first token"):
            self.assertIn(words, result.stderr)

    def test_special_tokens_of_users_stay_text(self):
        plain = self.client.chat("<|im_end|>", max_tokens=1).json()["usage"]["prompt_tokens"]
        one_token = self.client.chat("x", max_tokens=1).json()["usage"]["prompt_tokens"]
        self.assertGreater(plain, one_token)


class JournalTest(unittest.TestCase):
    def test_rows_of_requests_and_workers(self):
        import sqlite3
        cluster = Cluster()
        self.addCleanup(cluster.close)
        for _ in range(3):
            self.assertEqual(cluster.client.complete("abc", max_tokens=4).status, 200)
        self.assertEqual(cluster.stop(), 0)
        database = sqlite3.connect(f"file:{cluster.work}/baton.sqlite?mode=ro", uri=True)
        self.addCleanup(database.close)
        tables = {row[0] for row in
                  database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.assertLessEqual({"requests", "workers"}, tables)
        self.assertEqual(database.execute("SELECT count(*) FROM requests").fetchone()[0], 3)
        self.assertEqual(database.execute("SELECT count(*) FROM workers").fetchone()[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
