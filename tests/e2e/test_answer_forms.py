"""A stream says what the whole answer says: the same requests both ways, over all combinations of
the fields that shape an answer, and its pieces joined."""
import concurrent.futures
import itertools
import unittest

from cluster import Cluster

CLIENTS = 8


def joined(pieces):
    """The log-probabilities of a choice, whichever of the two shapes they have; None for none."""
    whole = {}
    for piece in pieces:
        for name, entries in piece.items():
            whole[name] = whole.get(name, []) + entries
    return whole or None


class Choice:
    def __init__(self):
        self.text, self.logprobs, self.ends = "", [], []
        self.token_ids, self.prompt_token_ids = None, None

    def add(self, told):
        """A choice of a whole answer or a chunk."""
        said = told.get("message") or told.get("delta") or {}
        self.text += told.get("text") or said.get("content") or ""
        if told.get("logprobs"):
            self.logprobs.append(told["logprobs"])
        if told.get("token_ids") is not None:
            self.token_ids = (self.token_ids or []) + told["token_ids"]
        if "prompt_token_ids" in told:
            assert self.prompt_token_ids is None, "told twice"
            self.prompt_token_ids = told["prompt_token_ids"]
        if told["finish_reason"]:
            self.ends.append((told["finish_reason"], told["stop_reason"]))

    def all(self):
        # A choice without a token has no pieces, and empty arrays as a whole.
        logprobs = joined(self.logprobs)
        if logprobs and not any(logprobs.values()):
            logprobs = None
        return {"text": self.text, "logprobs": logprobs, "token_ids": self.token_ids,
                "prompt_token_ids": self.prompt_token_ids, "ends": self.ends}


def told_of(events):
    """What a list of answers, of which the whole one is the only one, comes to."""
    choices, usage, prompt = {}, None, None
    for event in events:
        assert "error" not in event, event
        for told in event["choices"]:
            choices.setdefault(told["index"], Choice()).add(told)
        usage = event.get("usage") or usage
        if "prompt_token_ids" in event:
            assert prompt is None, "told twice"
            prompt = event["prompt_token_ids"]
    for number, choice in choices.items():
        assert len(choice.ends) == 1, f"choice {number} ends {len(choice.ends)} times"
    return {"choices": {number: choice.all() for number, choice in sorted(choices.items())},
            "usage": {name: usage[name] for name in ("prompt_tokens", "completion_tokens",
                                                     "total_tokens")},
            "prompt_token_ids": prompt}


def wishes(**fields):
    """All combinations; fields that are None are left out."""
    for values in itertools.product(*fields.values()):
        yield {name: value for name, value in zip(fields, values) if value is not None}


class AnswerForms:
    prefill = 1

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(prefill=cls.prefill)
        cls.addClassCleanup(cls.cluster.close)

    def compare(self, path, wish):
        wish = {"seed": 11, "temperature": 1, **wish}
        client = self.cluster.client
        answer = client.post(path, wish)
        self.assertEqual(answer.status, 200, f"{wish}: {answer.body}")
        whole = told_of([answer.json()])
        for options in ({"include_usage": True}, {"continuous_usage_stats": True}):
            streamed = told_of(client.stream(path, {**wish, "stream_options": options}))
            # What each chunk tells of usage is that of its own prompt.
            if not options.get("include_usage"):
                streamed["usage"] = whole["usage"]
            self.assertEqual(whole, streamed, wish)
        return whole

    def compare_all(self, path, each):
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(lambda wish: self.compare(path, wish), each))

    def test_completions(self):
        each = [wish for wish in wishes(
            prompt=("Hello world, and on.", ["Hello", [72, 105], "x"]), echo=(None, True),
            logprobs=(None, 0, 3), n=(None, 3), max_tokens=(0, 7),
            return_token_ids=(None, True), stop=(None, ["e", "t"]))
            if wish["max_tokens"] > 0 or "echo" in wish]
        told = self.compare_all("/v1/completions", each)
        self.assertEqual(len(told), 144)
        ends = {end for whole in told for choice in whole["choices"].values()
                for end, _ in choice["ends"]}
        self.assertIn("length", ends)
        stops = {reason for whole in told for choice in whole["choices"].values()
                 for _, reason in choice["ends"]}
        self.assertTrue(stops & {"e", "t"}, "no stop string was ever met")

    def test_chats(self):
        messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "I am"}]
        self.compare_all("/v1/chat/completions", [
            {"messages": messages, "continue_final_message": True, "add_generation_prompt": False,
             **({"top_logprobs": 2} if wish.get("logprobs") else {}), **wish}
            for wish in wishes(
                echo=(None, True), logprobs=(None, True), n=(None, 3), max_tokens=(1, 7),
                return_token_ids=(None, True), return_tokens_as_token_ids=(None, True),
                stop=(None, ["e", "t"]))])

    def test_ends_by_an_id(self):
        told = self.compare_all("/v1/completions", [
            {"prompt": "Hello", "max_tokens": 30, "stop_token_ids": list(range(0, 256, 2)), **wish}
            for wish in wishes(echo=(None, True), logprobs=(None, 2), n=(None, 3),
                               return_token_ids=(None, True), stop=(None, ["e", "t"]))])
        for whole in told:
            for choice in whole["choices"].values():
                (_, reason), = choice["ends"]
                if isinstance(reason, int) and choice["token_ids"]:
                    self.assertEqual(choice["token_ids"][-1], reason)

    def test_text_beyond_characters(self):
        """Bytes that are no text, special tokens, names of tokens: wherever pieces end."""
        self.compare_all("/v1/completions", [
            {"prompt": [1, 200, 201, 2, 130, 72], "max_tokens": 12, "ignore_eos": True, **wish}
            for wish in wishes(
                echo=(None, True), logprobs=(None, 2), skip_special_tokens=(None, False),
                return_tokens_as_token_ids=(None, True), include_stop_str_in_output=(None, True),
                stop=(None, ["e", "t", "a"]), min_tokens=(None, 5))])


class AnswerFormsOfAPair(AnswerForms, unittest.TestCase):
    pass


class AnswerFormsOfOneNode(AnswerForms, unittest.TestCase):
    prefill = 0


if __name__ == "__main__":
    unittest.main()
