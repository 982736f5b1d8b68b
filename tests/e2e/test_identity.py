"""The promise: the cluster's answer is, byte for byte, that of the same model in one process."""
import concurrent.futures
import json
import unittest

from cluster import Cluster, tiny_model
from processes import BATON, chat_text, run, stream_text

# Lengths around the edges of a page (64 tokens) and of a chunk (here 96 tokens); a byte or so a
# token in the tiny vocabulary.
LENGTHS = (1, 2, 31, 63, 64, 65, 95, 97, 127, 128, 129, 300, 700)
ALPHABET = "The relay runner hands the baton on, 4x100 m; caf\u00e9 \U0001F3C3 and \n\ttabs. "

SAMPLING = (
    {"temperature": 0},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 0.8, "seed": 2},
    {"temperature": 1.3, "seed": 0, "top_k": 20},
    {"temperature": 1.0, "seed": 7, "top_p": 0.7},
    {"temperature": 1.0, "seed": 9007199254740993, "min_p": 0.05},
    {"temperature": 0, "repetition_penalty": 1.3, "min_tokens": 20},
    {"temperature": 0.9, "seed": 5, "presence_penalty": 1.5, "frequency_penalty": 0.5},
)


def text_of(length):
    return (ALPHABET * (length // len(ALPHABET) + 1))[:length]


class Reference:
    """`baton run` with the same parameters; each asked once."""

    def __init__(self, model, *options):
        self.model, self.options, self.known = model, options, {}

    def text(self, prompt, raw, max_tokens, sampling):
        key = json.dumps([prompt, raw, max_tokens, sampling])
        if key not in self.known:
            arguments = ["--raw"] if raw else []
            for name, value in sampling.items():
                arguments += ["--" + name.replace("_", "-"), str(value)]
            result = run(BATON, "run", "--model", self.model, "--max-tokens", max_tokens,
                         *self.options, *arguments, "-", stdin=prompt)
            if result.returncode != 0:
                raise AssertionError(f"baton run: {result.stderr}")
            self.known[key] = result.stdout
        return self.known[key]


class IdentityCases:
    """The cases; a class below makes them run on one layout."""

    layout = {}
    options = ()
    run_options = ()
    model = ("llama", "f32")

    @classmethod
    def setUpClass(cls):
        model = tiny_model(*cls.model)
        cls.cluster = Cluster(model, options=("--chunk-tokens", "96", *cls.options), **cls.layout)
        cls.client = cls.cluster.client
        cls.reference = Reference(model, *cls.run_options)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def completion(self, prompt, max_tokens, sampling):
        answer = self.client.complete(prompt, max_tokens=max_tokens, **sampling)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()["choices"][0]["text"]

    def test_completions_of_many_lengths(self):
        for length in LENGTHS:
            prompt = text_of(length)
            with self.subTest(length=length):
                self.assertEqual(self.completion(prompt, 24, SAMPLING[0]),
                                 self.reference.text(prompt, True, 24, SAMPLING[0]))

    def test_sampled(self):
        prompt = text_of(80)
        for sampling in SAMPLING:
            with self.subTest(sampling=sampling):
                self.assertEqual(self.completion(prompt, 40, sampling),
                                 self.reference.text(prompt, True, 40, sampling))

    def test_few_tokens(self):
        for max_tokens in (1, 2, 3):
            with self.subTest(max_tokens=max_tokens):
                self.assertEqual(self.completion(text_of(70), max_tokens, SAMPLING[1]),
                                 self.reference.text(text_of(70), True, max_tokens, SAMPLING[1]))

    def test_chat_streamed_and_not(self):
        for text in ("Hello!", text_of(200)):
            for sampling in SAMPLING[:2]:
                with self.subTest(text=text[:10], sampling=sampling):
                    expected = self.reference.text(text, False, 32, sampling)
                    answer = self.client.chat(text, max_tokens=32, **sampling)
                    self.assertEqual(chat_text(answer), expected)
                    events = self.client.chat_stream(text, max_tokens=32, **sampling)
                    self.assertEqual(stream_text(events), expected)
                    self.assertTrue(events.done)

    def test_prompt_as_ids(self):
        prompt = text_of(130)
        ids = json.loads(run(BATON, "tokenize", "--model", self.cluster.model,
                             stdin=prompt).stdout)
        self.assertEqual(self.completion(ids, 16, SAMPLING[0]),
                         self.reference.text(prompt, True, 16, SAMPLING[0]))

    def test_sixteen_at_once(self):
        cases = [(text_of(10 + 37 * i), SAMPLING[i % len(SAMPLING)]) for i in range(16)]
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            answers = list(pool.map(lambda case: self.completion(case[0], 48, case[1]), cases))
        for (prompt, sampling), answer in zip(cases, answers):
            with self.subTest(length=len(prompt), sampling=sampling):
                self.assertEqual(answer, self.reference.text(prompt, True, 48, sampling))


class Apart(IdentityCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}


class Colocated(IdentityCases, unittest.TestCase):
    layout = {"prefill": 0, "decode": 1}


class TwoAndTwo(IdentityCases, unittest.TestCase):
    layout = {"prefill": 2, "decode": 2}
    model = ("qwen2", "q8_0")


class ApartOverTls(IdentityCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}
    options = ("--mover", "tls")


class ApartInF32(IdentityCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}
    options = ("--kv-dtype", "f32", "--max-batch", "4")
    run_options = ("--kv-dtype", "f32")
    model = ("llama", "q4_0")


class ApartInInt8(IdentityCases, unittest.TestCase):
    layout = {"prefill": 1, "decode": 1}
    options = ("--kv-dtype", "int8")
    run_options = ("--kv-dtype", "int8")
    model = ("llama", "q8_0")


class PromptLengths(unittest.TestCase):
    """Prompts of exactly so many tokens, around a page's edge and over many chunks, in pages of two
    sizes and both KV dtypes."""

    @classmethod
    def setUpClass(cls):
        cls.model = tiny_model("llama", "f32", context=8192)
        cls.prompts = {count: cls.text_of_tokens(count) for count in (1, 63, 64, 65, 8000)}

    @classmethod
    def text_of_tokens(cls, count):
        length = count
        for _ in range(100):
            text = text_of(length)
            found = len(json.loads(run(BATON, "tokenize", "--model", cls.model, stdin=text).stdout))
            if found == count:
                return text
            length += (count - found) or 1
        raise AssertionError(f"no text of {count} tokens was found")

    def compare(self, page_tokens, kv_dtype, *mover):
        options = ("--kv-dtype", kv_dtype)
        reference = Reference(self.model, *options)
        cluster = Cluster(self.model, options=(*options, *mover),
                          env={"BATON_PAGE_TOKENS": str(page_tokens)})
        self.addCleanup(cluster.close)
        for count, prompt in self.prompts.items():
            with self.subTest(tokens=count):
                answer = cluster.client.complete(prompt, max_tokens=12, temperature=0)
                self.assertEqual(answer.status, 200, answer.body)
                body = answer.json()
                self.assertEqual(body["usage"]["prompt_tokens"], count)
                self.assertEqual(body["choices"][0]["text"],
                                 reference.text(prompt, True, 12, {"temperature": 0}))
        self.assertEqual(cluster.client.metric("baton_placements_total", reason="pair"),
                         len(self.prompts))

    def test_pages_of_16_tokens_in_f32(self):
        self.compare(16, "f32")

    def test_pages_of_16_tokens_in_bf16(self):
        self.compare(16, "bf16")

    def test_pages_of_64_tokens_in_f32(self):
        self.compare(64, "f32")

    def test_pages_of_64_tokens_in_bf16(self):
        self.compare(64, "bf16", "--mover", "tls")


if __name__ == "__main__":
    unittest.main(verbosity=2)
