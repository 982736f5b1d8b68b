"""What load tools send, as they send it: each body is served, its counts are those asked for."""
import unittest

from cluster import Cluster

TOKENS = 6
PROMPT = "The runners wait for the baton. "

# By tool: the path, and the body without model and stream.
SHAPES = {
    # Content in parts, and the counts with every chunk.
    "guidellm chat": ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT},
                                                  {"type": "text", "text": "Go on."}]}],
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_completion_tokens": TOKENS, "max_tokens": TOKENS, "stop": None, "ignore_eos": True}),
    "guidellm text": ("/v1/completions", {
        "prompt": PROMPT,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": TOKENS, "stop": None, "ignore_eos": True}),
    "vllm text": ("/v1/completions", {
        "prompt": PROMPT, "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": None,
        "temperature": 0.0, "ignore_eos": True, "stream_options": {"include_usage": True}}),
    "vllm ids": ("/v1/completions", {
        "prompt": [5, 6, 7, 8, 9, 10], "repetition_penalty": 1.0, "max_tokens": TOKENS,
        "logprobs": None, "ignore_eos": True, "stream_options": {"include_usage": True}}),
    "vllm chat": ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}],
        "max_completion_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True,
        "stream_options": {"include_usage": True}}),
    "sglang text": ("/v1/completions", {
        "prompt": PROMPT, "temperature": 0.0, "best_of": 1, "max_tokens": TOKENS,
        "ignore_eos": True, "stream_options": {"include_usage": True}}),
    "aiperf chat": ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": PROMPT}], "max_completion_tokens": TOKENS,
        "min_tokens": TOKENS, "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
}


class LoadToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client
        cls.model = cls.client.get("/v1/models").json()["data"][0]["id"]

    def test_streams(self):
        for name, (path, body) in SHAPES.items():
            with self.subTest(name=name):
                events = self.client.stream(path, {"model": self.model, **body})
                chunks = list(events)
                self.assertTrue(events.done)
                *chunks, last = chunks
                self.assertEqual(last["choices"], [])
                self.assertEqual(last["usage"]["completion_tokens"], TOKENS)
                self.assertEqual(last["usage"]["total_tokens"],
                                 last["usage"]["prompt_tokens"] + TOKENS)
                finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
                self.assertEqual([finish for finish in finishes if finish], ["length"])
                if body["stream_options"].get("continuous_usage_stats"):
                    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
                    self.assertEqual(counts, sorted(counts))
                    self.assertLessEqual(counts[0], 1)
                    self.assertEqual(counts[-1], TOKENS)
                else:
                    self.assertEqual([chunk for chunk in chunks if chunk.get("usage")], [])

    def test_whole_answers(self):
        for name, (path, body) in SHAPES.items():
            with self.subTest(name=name):
                body = {key: value for key, value in body.items() if key != "stream_options"}
                answer = self.client.post(path, {"model": self.model, "stream": False, **body})
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json()["usage"]["completion_tokens"], TOKENS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
