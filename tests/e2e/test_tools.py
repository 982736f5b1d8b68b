"""Tool calls through the client library most programs use: whatever a model says, calls that have
to come are whole and fit their schemas, and a stream brings what the whole answer holds."""
import json
import unittest

from cluster import Cluster, tiny_model
from processes import python_package, real_model

CITY = {"type": "string", "minLength": 1, "maxLength": 12}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 99}
SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": CITY, "unit": {"enum": ["C", "F"]}},
                    "required": ["city", "unit"], "additionalProperties": False},
    "add": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"],
            "additionalProperties": False},
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "strict": True,
                                           "description": "The weather of a city",
                                           "parameters": SCHEMAS["get_weather"]}},
         {"type": "function", "function": {"name": "add", "description": "The sum of two numbers",
                                           "parameters": SCHEMAS["add"]}}]
QUESTION = [{"role": "user", "content": "How warm is it in Paris, and what is 17 + 25?"}]
RESULTS = {"get_weather": "18 degrees", "add": "42"}


def setUpModule():
    global openai
    openai = python_package("openai")


def named(name):
    return {"type": "function", "function": {"name": name}}


def is_number(value):
    return type(value) is int and 0 <= value <= 99


def fits(name, text):
    """Whether the text is a document of the tool's schema."""
    value = json.loads(text)
    if name == "add":
        return set(value) == {"a", "b"} and all(map(is_number, value.values()))
    return (set(value) == {"city", "unit"} and value["unit"] in ("C", "F")
            and isinstance(value["city"], str) and 1 <= len(value["city"]) <= 12)


def of_message(choice):
    message = choice.message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    return message.content or "", calls, choice.finish_reason


class Streamed:
    """One choice of a stream, put together as clients do."""

    def __init__(self):
        self.content, self.calls, self.ids, self.finish = "", [], [], None

    def add(self, choice):
        self.content += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            if call.id:
                assert call.index == len(self.calls), "calls begin in their order"
                self.ids.append(call.id)
                self.calls.append([call.function.name, ""])
            self.calls[call.index][1] += call.function.arguments
        self.finish = choice.finish_reason or self.finish

    def of_message(self):
        return self.content, [tuple(call) for call in self.calls], self.finish


class ToolsTest(unittest.TestCase):
    """By the random model: every byte that nothing keeps in order is nonsense."""

    @classmethod
    def model_path(cls):
        return tiny_model(context=4096)

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model=cls.model_path(), options=("--context", "4096"))
        cls.addClassCleanup(cls.cluster.close)
        cls.client = openai.OpenAI(base_url=cls.cluster.url + "/v1", api_key="none",
                                   max_retries=0, timeout=120)
        cls.addClassCleanup(cls.client.close)
        cls.model = cls.client.models.list().data[0].id

    def ask(self, **fields):
        fields = {"model": self.model, "messages": QUESTION, "tools": TOOLS,
                  "max_completion_tokens": 300, **fields}
        return self.client.chat.completions.create(**fields)

    def both(self, **fields):
        """The answer's choices, which a stream must bring as well."""
        whole = [of_message(choice) for choice in self.ask(**fields).choices]
        streamed = [Streamed() for _ in whole]
        for chunk in self.ask(stream=True, stream_options={"include_usage": True}, **fields):
            for choice in chunk.choices:
                streamed[choice.index].add(choice)
        self.assertEqual([one.of_message() for one in streamed], whole)
        ids = [id for one in streamed for id in one.ids]
        self.assertEqual(len(set(ids)), len(ids))
        return whole

    def assert_calls(self, calls, names=SCHEMAS):
        for name, arguments in calls:
            self.assertIn(name, names)
            self.assertTrue(fits(name, arguments), f"{name}({arguments})")

    def test_required_calls_are_whole_and_fit(self):
        for seed in range(4):
            for content, calls, finish in self.both(tool_choice="required", n=2, seed=seed):
                self.assertEqual((content, finish), ("", "tool_calls"))
                self.assertTrue(1 <= len(calls) <= 8)
                self.assert_calls(calls)

    def test_one_call_where_one_is_wanted(self):
        (content, calls, finish), = self.both(tool_choice="required", parallel_tool_calls=False,
                                              seed=5)
        self.assertEqual((content, len(calls), finish), ("", 1, "tool_calls"))
        self.assert_calls(calls)

    def test_a_named_function_is_the_one_that_is_called(self):
        for name in SCHEMAS:
            (content, calls, finish), = self.both(tool_choice=named(name), temperature=0)
            self.assertEqual((content, len(calls), finish), ("", 1, "stop"))
            self.assert_calls(calls, [name])

    def test_free_answers_lose_nothing(self):
        for tool_choice in "auto", "none":
            for content, calls, _ in self.both(tool_choice=tool_choice, n=2, seed=1,
                                               max_completion_tokens=40):
                self.assertTrue(content or calls)
                if tool_choice == "none":
                    self.assertEqual(calls, [])

    def test_what_can_not_be_asked_for_is_said(self):
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMAS["add"]}}
        impossible = [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}},
            "required": ["a"]}}}]
        for param, fields in (("tools", {"tools": []}),
                              ("tools", {"tools": impossible, "tool_choice": "required"}),
                              ("tool_choice", {"tool_choice": named("sub")}),
                              ("tool_choice", {"tool_choice": "required",
                                               "response_format": schema})):
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**fields)
            self.assertEqual(caught.exception.param, param, caught.exception)

    def run_tools(self, messages, message):
        """The conversation goes on with what the tools say."""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": RESULTS[call.function.name]})

    def test_two_tools_in_a_loop(self):
        messages = list(QUESTION)
        for tool_choice in named("get_weather"), named("add"), "required":
            choice, = self.ask(messages=messages, tool_choice=tool_choice, temperature=0).choices
            _, calls, _ = of_message(choice)
            self.assert_calls(calls)
            self.assertTrue(calls)
            self.run_tools(messages, choice.message)
        for _ in range(3):
            choice, = self.ask(messages=messages, temperature=0,
                               max_completion_tokens=60).choices
            content, calls, finish = of_message(choice)
            self.assertTrue(content or calls)
            self.assertEqual(finish == "tool_calls", bool(calls) and finish != "length")
            if finish != "tool_calls":
                break
            self.run_tools(messages, choice.message)


class RealModelToolsTest(ToolsTest):
    @classmethod
    def model_path(cls):
        return real_model()


if __name__ == "__main__":
    unittest.main()
