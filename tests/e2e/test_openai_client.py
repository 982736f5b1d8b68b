"""The client library most programs use, against a whole cluster: what it parses, what it raises."""
import os
import pathlib
import tempfile
import unittest

from cluster import Cluster, Router, tiny_model
from processes import python_package

KEY = "sk-0123456789abcdef"
LIMITED = "sk-one-request-a-minute"


def setUpModule():
    global openai
    openai = python_package("openai")


class OpenaiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="baton-keys-")
        keys = pathlib.Path(cls.scratch.name) / "keys"
        keys.write_text(f"{KEY} acme\n{LIMITED} deli requests=1\n")
        os.chmod(keys, 0o600)
        cls.cluster = Cluster(model=tiny_model(context=2048),
                              env={"BATON_API_KEYS": str(keys), "BATON_MAX_BODY": "1M"})
        cls.client = cls.dial(KEY)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()
        cls.scratch.cleanup()

    @classmethod
    def dial(cls, key, **options):
        return openai.OpenAI(base_url=cls.cluster.url + "/v1", api_key=key, max_retries=0,
                                 timeout=60, **options)

    def chat(self, client=None, **fields):
        fields = {"model": self.model, "max_completion_tokens": 8, "temperature": 0,
                  "messages": [{"role": "user", "content": "Hello"}],
                  "extra_body": {"ignore_eos": True}, **fields}
        return (client or self.client).chat.completions.create(**fields)

    def complete(self, **fields):
        fields = {"model": self.model, "prompt": "Hello", "max_tokens": 8, "temperature": 0,
                  "extra_body": {"ignore_eos": True}, **fields}
        return self.client.completions.create(**fields)

    def test_models(self):
        model, = self.client.models.list().data
        self.assertEqual(model.object, "model")
        self.assertEqual(model.max_model_len, 2048)
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("another")
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_chat(self):
        answer = self.chat(extra_headers={"X-Request-Id": "mine-1"})
        self.assertEqual(answer._request_id, "mine-1")
        self.assertEqual(answer.object, "chat.completion")
        choice, = answer.choices
        self.assertEqual((choice.message.role, choice.finish_reason), ("assistant", "length"))
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)
        parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
        self.assertEqual(self.chat(messages=parts).choices[0].message.content,
                         choice.message.content)

    def test_chat_streamed(self):
        whole = self.chat().choices[0].message.content
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        self.assertEqual(chunks[-1].choices, [])
        choices = [chunk.choices[0] for chunk in chunks[:-1]]
        self.assertEqual("".join(choice.delta.content or "" for choice in choices), whole)
        self.assertEqual([choice.finish_reason for choice in choices if choice.finish_reason],
                         ["length"])

    def test_completions(self):
        whole = self.complete().choices[0]
        self.assertEqual(whole.finish_reason, "length")
        pieces = [chunk.choices[0].text for chunk in self.complete(stream=True)]
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual(self.complete(echo=True).choices[0].text, "Hello" + whole.text)
        self.assertEqual(self.complete(prompt=["Hello"]).choices[0].text, whole.text)

    def test_several_answers(self):
        answer = self.chat(n=3, temperature=1, seed=7)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertEqual(answer.usage.completion_tokens, 24)
        texts = {0: "", 1: "", 2: ""}
        for chunk in self.chat(n=3, temperature=1, seed=7, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, {choice.index: choice.message.content
                                 for choice in answer.choices})

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        self.assertEqual(len(content), 8)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob, "temperature 0")
            self.assertEqual(bytes(token.bytes).decode(errors="replace"), token.token)
        logprobs = self.complete(logprobs=2).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 8)
        self.assertEqual(len(logprobs.token_logprobs), 8)
        self.assertEqual(logprobs.text_offset[0], 0)

    def test_errors_have_their_classes(self):
        long = "word " * 3000
        cases = (
            (openai.BadRequestError, "temperature", None, lambda: self.chat(temperature=3)),
            (openai.BadRequestError, "messages", None, lambda: self.chat(messages=[])),
            (openai.BadRequestError, "messages", "context_length_exceeded",
             lambda: self.chat(messages=[{"role": "user", "content": long}])),
            (openai.BadRequestError, "stream_options", None,
             lambda: self.chat(stream_options={"include_usage": True})),
            (openai.BadRequestError, "n", None, lambda: self.chat(n=2)),
            (openai.NotFoundError, "model", "model_not_found", lambda: self.chat(model="another")),
            (openai.NotFoundError, None, "not_found",
             lambda: self.client.embeddings.create(model=self.model, input="x")),
            (openai.AuthenticationError, None, "invalid_api_key",
             lambda: self.chat(self.dial("sk-not-a-key-of-this-server"))),
        )
        for kind, param, code, call in cases:
            with self.subTest(kind=kind.__name__, param=param, code=code):
                with self.assertRaises(kind) as caught:
                    call()
                error = caught.exception
                self.assertIs(type(error), kind)
                self.assertEqual((error.param, error.code), (param, code))
                self.assertTrue(error.body["message"])
                self.assertTrue(error.request_id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": long}])
        self.assertIn("This model's maximum context length is 2048 tokens",
                      caught.exception.message)

    def test_too_large_a_body(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            self.chat(messages=[{"role": "user", "content": "x" * (2 << 20)}])
        self.assertEqual(caught.exception.status_code, 413)
        self.assertEqual(caught.exception.code, "body_too_large")

    def test_a_limit_says_when_to_come_back(self):
        client = self.dial(LIMITED)
        self.chat(client)
        with self.assertRaises(openai.RateLimitError) as caught:
            self.chat(client)
        self.assertEqual(caught.exception.code, "rate_limit_exceeded")
        after_s = int(caught.exception.response.headers["Retry-After"])
        self.assertTrue(1 <= after_s <= 60, after_s)


class OpenaiWithoutWorkersTest(unittest.TestCase):
    def test_nobody_to_serve_is_a_server_error(self):
        router = Router()
        self.addCleanup(router.close)
        client = openai.OpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        self.assertEqual(client.models.list().data, [])
        model = tiny_model().stem
        with self.assertRaises(openai.InternalServerError) as caught:
            client.completions.create(model=model, prompt="x", max_tokens=2)
        self.assertEqual(caught.exception.status_code, 503)
        self.assertIn("Retry-After", caught.exception.response.headers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
