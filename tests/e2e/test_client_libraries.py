"""LiteLLM (which aider speaks through) and LangChain against a whole cluster: answers, streams, and
which of their own exceptions our errors become. A long test, and only where both are installed: in
this Python, or in the folder that `BATON_CLIENT_PACKAGES` names (`pip install litellm==1.110.2
langchain-openai==1.7.4`)."""
import os
import pathlib
import sys
import tempfile
import unittest

from cluster import Cluster, Router, tiny_model
from processes import real_model

KEY = "sk-0123456789abcdef"
LIMITED = "sk-one-request-a-minute"
LONG_PROMPT = "word " * 3000
HELLO = [{"role": "user", "content": "Hello"}]


def setUpModule():
    global litellm, langchain_openai, langchain_core, openai
    if not os.environ.get("BATON_TEST_LONG"):
        raise unittest.SkipTest("a long test: set BATON_TEST_LONG")
    sys.path.insert(0, os.environ.get("BATON_CLIENT_PACKAGES", ""))
    # Neither asks for anything outside: no price list, no traces.
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false",
                      DO_NOT_TRACK="1")
    try:
        import langchain_core.exceptions
        import langchain_core.messages
        import langchain_openai
        import litellm
        import openai
    except ImportError as error:
        raise unittest.SkipTest(f"{error}: set BATON_CLIENT_PACKAGES") from error
    litellm.suppress_debug_info = True
    litellm.telemetry = False


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="baton-keys-")
        cls.addClassCleanup(cls.scratch.cleanup)
        keys = pathlib.Path(cls.scratch.name) / "keys"
        keys.write_text(f"{KEY} acme\n{LIMITED} deli requests=1\n")
        os.chmod(keys, 0o600)
        cls.cluster = Cluster(model=tiny_model(context=2048),
                              env={"BATON_API_KEYS": str(keys)})
        cls.addClassCleanup(cls.cluster.close)
        cls.model = openai.OpenAI(base_url=cls.cluster.url + "/v1",
                                  api_key=KEY).models.list().data[0].id


class LitellmTest(ClusterTest):
    def ask(self, call=None, key=KEY, url=None, **fields):
        fields = {"model": "openai/" + self.model, "temperature": 0, "max_tokens": 8,
                  "num_retries": 0, "max_retries": 0, "timeout": 60,
                  "extra_body": {"ignore_eos": True}, **fields}
        return (call or litellm.completion)(api_base=(url or self.cluster.url) + "/v1",
                                            api_key=key, **fields)

    def test_chat_and_its_stream(self):
        answer = self.ask(messages=HELLO)
        text = answer.choices[0].message.content
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 8)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)
        chunks = list(self.ask(messages=HELLO, stream=True,
                               stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks
                                 if chunk.choices), text)
        finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        self.assertEqual([finish for finish in finishes if finish], ["length"])
        usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
        self.assertEqual(usages[-1].completion_tokens, 8)

    def test_completions_and_their_stream(self):
        ask = litellm.text_completion
        name = "text-completion-openai/" + self.model
        text = self.ask(ask, model=name, prompt="Hello").choices[0].text
        self.assertTrue(text)
        chunks = self.ask(ask, model=name, prompt="Hello", stream=True)
        self.assertEqual("".join(chunk.choices[0].text or "" for chunk in chunks), text)

    def test_errors_have_their_classes(self):
        cases = (
            (litellm.ContextWindowExceededError,
             {"messages": [{"role": "user", "content": LONG_PROMPT}]}),
            (litellm.ContextWindowExceededError,
             {"messages": [{"role": "user", "content": LONG_PROMPT}], "stream": True}),
            (litellm.BadRequestError, {"messages": HELLO, "temperature": 3}),
            (litellm.NotFoundError, {"messages": HELLO, "model": "openai/another"}),
            (litellm.AuthenticationError, {"messages": HELLO, "key": "sk-not-of-this-server"}),
        )
        for kind, fields in cases:
            with self.subTest(kind=kind.__name__):
                with self.assertRaises(kind) as caught:
                    self.ask(**fields)
                self.assertIs(type(caught.exception), kind, caught.exception)

    def test_a_limit_is_a_rate_limit(self):
        self.ask(messages=HELLO, key=LIMITED)
        with self.assertRaises(litellm.RateLimitError) as caught:
            self.ask(messages=HELLO, key=LIMITED)
        self.assertTrue(1 <= int(caught.exception.response.headers["Retry-After"]) <= 60)

    def test_nobody_to_serve(self):
        router = Router()
        self.addCleanup(router.close)
        with self.assertRaises(litellm.ServiceUnavailableError):
            self.ask(messages=HELLO, url=router.url, model="openai/" + tiny_model().stem)


class LangchainTest(ClusterTest):
    def chat(self, key=KEY, **fields):
        fields = {"model": self.model, "temperature": 0, "max_tokens": 8, "max_retries": 0,
                  "timeout": 60, "extra_body": {"ignore_eos": True}, **fields}
        return langchain_openai.ChatOpenAI(base_url=self.cluster.url + "/v1", api_key=key,
                                           **fields)

    def test_chat_and_its_stream(self):
        answer = self.chat().invoke("Hello")
        self.assertEqual(answer.response_metadata["finish_reason"], "length")
        self.assertEqual(answer.usage_metadata["output_tokens"], 8)
        chunks = list(self.chat(stream_usage=True).stream("Hello"))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole = whole + chunk
        self.assertEqual(whole.content, answer.content)
        self.assertEqual(whole.usage_metadata["output_tokens"], 8)
        self.assertEqual(whole.usage_metadata["input_tokens"],
                         answer.usage_metadata["input_tokens"])

    def test_log_probabilities(self):
        answer = self.chat(logprobs=True, top_logprobs=2).invoke("Hello")
        content = answer.response_metadata["logprobs"]["content"]
        self.assertEqual([len(token["top_logprobs"]) for token in content], [2] * 8)

    def test_completions(self):
        model = langchain_openai.OpenAI(base_url=self.cluster.url + "/v1", api_key=KEY,
                                        model=self.model, temperature=0, max_tokens=8,
                                        max_retries=0, timeout=60)
        text = model.invoke("Hello")
        self.assertEqual("".join(model.stream("Hello")), text)

    def test_several_at_once(self):
        alone = self.chat().invoke("Hello").content
        self.assertEqual([answer.content for answer in self.chat().batch(["Hello"] * 6)],
                         [alone] * 6)

    def test_errors_have_their_classes(self):
        with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
            self.chat().invoke(LONG_PROMPT)
        with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
            list(self.chat().stream(LONG_PROMPT))
        for kind, model in ((openai.BadRequestError, self.chat(temperature=3)),
                            (openai.NotFoundError, self.chat(model="another")),
                            (openai.AuthenticationError, self.chat(key="sk-not-of-this-server"))):
            with self.subTest(kind=kind.__name__), self.assertRaises(kind):
                model.invoke("Hello")

    def test_a_limit_is_a_rate_limit(self):
        limited = self.chat(key=LIMITED)
        limited.invoke("Hello")
        with self.assertRaises(openai.RateLimitError):
            limited.invoke("Hello")


CITY = {"type": "string", "minLength": 1, "maxLength": 12}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 99}
PLACE = {"title": "place", "description": "Where it is", "type": "object",
         "properties": {"city": CITY, "people": NUMBER}, "required": ["city", "people"],
         "additionalProperties": False}
TOOLS = [{"type": "function", "function": {
    "name": name, "description": f"The {name} of a city", "parameters": {
        "type": "object", "properties": {"city": CITY}, "required": ["city"],
        "additionalProperties": False}}} for name in ("weather", "size")]


class LangchainToolsTest(unittest.TestCase):
    """By the real model: what it says may be nonsense, its form is not."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model=real_model(), options=("--context", "4096"))
        cls.addClassCleanup(cls.cluster.close)

    def chat(self, **fields):
        fields = {"model": real_model().stem, "temperature": 0, "max_tokens": 200,
                  "max_retries": 0, "timeout": 120, **fields}
        return langchain_openai.ChatOpenAI(base_url=self.cluster.url + "/v1", api_key="none",
                                           **fields)

    def assert_calls(self, message):
        self.assertEqual(message.invalid_tool_calls, [])
        for call in message.tool_calls:
            self.assertIn(call["name"], ("weather", "size"))
            self.assertEqual(list(call["args"]), ["city"])
            self.assertTrue(1 <= len(call["args"]["city"]) <= 12)

    def test_an_agent_calls_its_tools(self):
        chat = self.chat()
        messages = [langchain_core.messages.HumanMessage("How warm and how large is Paris?")]
        for choice in ("weather", "size", "any"):
            answer = chat.bind_tools(TOOLS, tool_choice=choice).invoke(messages)
            self.assertTrue(answer.tool_calls)
            self.assert_calls(answer)
            messages.append(answer)
            messages += [langchain_core.messages.ToolMessage("18", tool_call_id=call["id"])
                         for call in answer.tool_calls]
        answer = chat.bind_tools(TOOLS).invoke(messages)
        self.assertTrue(answer.content or answer.tool_calls)

    def test_a_stream_brings_the_same_calls(self):
        chat = self.chat().bind_tools(TOOLS, tool_choice="any")
        alone = chat.invoke("How warm is it in Paris?")
        whole = None
        for chunk in chat.stream("How warm is it in Paris?"):
            whole = chunk if whole is None else whole + chunk
        self.assertEqual([(call["name"], call["args"]) for call in whole.tool_calls],
                         [(call["name"], call["args"]) for call in alone.tool_calls])
        self.assert_calls(whole)

    def test_documents_fit_their_schema(self):
        place = self.chat().with_structured_output(PLACE, method="json_schema").invoke(
            "Paris is a city of 2 million people.")
        self.assertEqual(set(place), {"city", "people"})
        self.assertTrue(1 <= len(place["city"]) <= 12)
        self.assertTrue(type(place["people"]) is int and 0 <= place["people"] <= 99)


if __name__ == "__main__":
    unittest.main(verbosity=2)
