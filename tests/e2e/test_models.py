"""Several models behind one router, in real processes: two of one tokenizer, told apart by name,
and one that is known by its file."""
import concurrent.futures
import pathlib
import re
import subprocess
import tempfile
import unittest

from cluster import PATIENCE, Cluster, tiny_model
from processes import (BATON, BIN, DEADLINE_S, Client, clean_environment, run, stream_text,
                       wait_for)

MAX_TOKENS = 12
PROMPTS = ["A relay has four runners. ", "The baton is handed on, from one to the next. " * 6,
           "Nobody runs alone. " * 3]


def second_model(folder):
    """Of the tokenizer of tiny_model() and the name in that file, with other weights."""
    path = pathlib.Path(folder) / "second.gguf"
    made = run(BATON, "make-model", "--like", "tiny", "--type", "f32", "--seed", "2", path)
    if made.returncode != 0:
        raise AssertionError(f"make-model: {made.stderr}")
    return path


class Models:
    """A router for the models a, b and c; a and b have two nodes each, c has a decode node."""

    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-models-")
        self.folder = pathlib.Path(self.scratch.name)
        self.models = {"a": tiny_model(), "b": second_model(self.folder),
                       "c": tiny_model("qwen2")}
        self.processes = {}
        try:
            served = [f"--model={name}={path}" for name, path in self.models.items()]
            for name, text in (("b", "B"), ("all", "others")):
                template = self.folder / f"{name}.jinja"
                template.write_text(text + ": {{ messages[0].content }}")
                served.append(f"--chat-template={'b=' if name == 'b' else ''}{template}")
            self.start("router", "baton-router", *served, "--http", "127.0.0.1:0", "--control",
                       "127.0.0.1:0", "--state-dir", self.folder, "--local-prefill-tokens", "0")
            self.http, self.control = wait_for(self._ports, "the router")
            self.client = Client(f"http://127.0.0.1:{self.http}")
            for model in self.models:
                for role in ("prefill", "decode") if model != "c" else ("decode",):
                    self.start_worker(role, model)
            wait_for(lambda: self.listed() == ["a", "b", "c"] and
                     self.client.metric("baton_workers", state="up") == 5, "all workers")
        except BaseException:
            print(self.words())
            self.close()
            raise

    def start(self, name, program, *words):
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / program), *map(str, words)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**clean_environment(), **PATIENCE})

    def start_worker(self, role, model, *words):
        """c is the only one of its kind; a and b have the same tokenizer and the same name in their
        files, so they have to be told."""
        told = ["--model-name", model] if model != "c" else []
        self.start(f"{role}-{model}", f"baton-{role}", "--model", self.models[model], "--name",
                   f"{role}-{model}", "--threads", "1", "--router", f"127.0.0.1:{self.control}",
                   *told, *words)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def _ports(self):
        if self.processes["router"].poll() is not None:
            raise AssertionError(self.words())
        found = re.search(r"HTTP on port (\d+), workers on port (\d+)", self.log("router"))
        return found and found.groups()

    def words(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()}"
                         for path in sorted(self.folder.glob("*.log")))

    def listed(self):
        return [model["id"] for model in self.client.get("/v1/models").json()["data"]]

    def kill(self, name):
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def close(self):
        for process in self.processes.values():
            process.terminate()
        codes = {name: process.wait(DEADLINE_S) for name, process in self.processes.items()}
        words = self.words()
        self.scratch.cleanup()
        if any(codes.values()) or "Sanitizer" in words or "runtime error:" in words:
            raise AssertionError(f"{codes}\n{words}")


class ModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Models()
        cls.addClassCleanup(cls.served.close)
        cls.client = cls.served.client
        cls.expected = {
            (model, prompt): run(BATON, "run", "--model", path, "--raw", "--temperature", "0",
                                 "--max-tokens", MAX_TOKENS, "-", stdin=prompt).stdout
            for model, path in cls.served.models.items() for prompt in PROMPTS}

    def ask(self, model, prompt):
        return self.client.complete(prompt, model=model, max_tokens=MAX_TOKENS, temperature=0)

    def assert_right(self, model, prompt):
        answer = self.ask(model, prompt)
        self.assertEqual(answer.status, 200, f"{answer.body}\n{self.served.words()}")
        self.assertEqual(answer.json()["model"], model)
        self.assertEqual(answer.json()["choices"][0]["text"], self.expected[model, prompt],
                         f"{model}: {prompt}")

    def up(self, model):
        return [worker for worker in self.client.get("/workers").json()["workers"]
                if worker["state"] == "up" and worker["model"] == model]

    def test_each_model_has_its_chat_template(self):
        for model, wanted in (("a", "others: hi"), ("b", "B: hi"), ("c", "others: hi")):
            chat = self.client.post("/tokenize", {
                "model": model, "messages": [{"role": "user", "content": "hi"}]}).json()
            text = self.client.post("/detokenize", {
                "model": model, "tokens": chat["tokens"]}).json()["prompt"]
            self.assertEqual(text.removeprefix("<s>"), wanted, model)

    def test_requests_at_once_are_answered_by_their_models(self):
        """Three times over: later rounds find their prompts in the caches of their own model."""
        texts = {self.expected[model, PROMPTS[1]] for model in "abc"}
        self.assertEqual(len(texts), 3, "the models have to say different things")
        work = [(model, prompt) for prompt in PROMPTS for model in "abc"] * 3
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda pair: self.assert_right(*pair), work))
        self.assertEqual({worker["name"][-1] for worker in self.up("b")}, {"b"})
        for model in "abc":
            name = {"model_name": model}
            self.assertGreaterEqual(
                self.client.metric("vllm:time_to_first_token_seconds_count", **name), 9)
        for model in "ab":
            wait_for(lambda: any(worker["handoff"]["bytes"] > 0 for worker in self.up(model)
                                 if worker["role"] == "decode"),
                     f"a heartbeat that tells of pages from the prefill node of {model}")

    def test_a_grammar_is_made_of_the_tokens_of_the_model(self):
        def counted():
            return [self.client.metric("baton_model_grammar_requests_total", model=model)
                    for model in "abc"]
        before = counted()
        for model in "abc":
            answer = self.client.complete(PROMPTS[0], model=model, max_tokens=MAX_TOKENS,
                                          temperature=0, structured_outputs={"choice": ["yes"]})
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.json()["choices"][0]["text"], "yes", model)
        self.assertEqual(counted(), [count + 1 for count in before])

    def test_a_model_whose_worker_dies_is_away_by_itself(self):
        self.served.kill("decode-b")
        wait_for(lambda: self.served.listed() == ["a", "c"], "the router to know")
        answer = self.ask("b", PROMPTS[0])
        self.assertEqual(answer.status, 503)
        self.assertIn('model "b"', answer.json()["error"]["message"])
        self.assertTrue(answer.headers["Retry-After"])
        self.assertEqual(self.client.get("/health").status, 200)
        for model in "ac":
            self.assert_right(model, PROMPTS[1])
        events = self.client.complete_stream(PROMPTS[2], model="a", max_tokens=MAX_TOKENS,
                                             temperature=0)
        self.assertEqual(stream_text(events), self.expected["a", PROMPTS[2]])
        self.served.start_worker("decode", "b")
        wait_for(lambda: self.served.listed() == ["a", "b", "c"], "another node of b")
        for model in "abc":
            self.assert_right(model, PROMPTS[1])

    def test_a_worker_that_may_be_of_two_models_is_refused(self):
        self.served.start("stray", "baton-decode", "--model", self.served.models["b"], "--name",
                          "stray", "--threads", "1", "--router",
                          f"127.0.0.1:{self.served.control}")
        wait_for(lambda: "--model-name" in self.served.log("router"), "the refusal")
        refusal = next(worker["reason"] for worker in self.client.get("/workers").json()["workers"]
                       if worker["state"] == "refused")
        self.assertIn('"a", "b"', refusal)
        self.assertIn("random-llama-tiny", refusal)
        self.served.kill("stray")
        self.assert_right("b", PROMPTS[0])



class UpTest(unittest.TestCase):
    """Both have the same tokenizer and the same name in their files."""

    def test_two_models_of_one_command(self):
        scratch = tempfile.TemporaryDirectory(prefix="baton-models-")
        self.addCleanup(scratch.cleanup)
        models = {"a": tiny_model(), "b": second_model(scratch.name)}
        cluster = Cluster(f"a={models['a']}", options=["--model", f"b={models['b']}"])
        self.addCleanup(cluster.close)
        answers = set()
        for name, path in models.items():
            expected = run(BATON, "run", "--model", path, "--raw", "--temperature", "0",
                           "--max-tokens", MAX_TOKENS, "-", stdin=PROMPTS[1]).stdout
            answer = cluster.client.complete(PROMPTS[1], model=name, max_tokens=MAX_TOKENS,
                                             temperature=0)
            self.assertEqual(answer.status, 200, f"{answer.body}\n{cluster.words()}")
            self.assertEqual(answer.json()["choices"][0]["text"], expected)
            answers.add(expected)
        self.assertEqual(len(answers), 2, "the models have to say different things")
        workers = cluster.client.get("/workers").json()["workers"]
        self.assertEqual(sorted((worker["model"], worker["role"]) for worker in workers),
                         [(name, role) for name in "ab" for role in ("decode", "prefill")])


if __name__ == "__main__":
    unittest.main()
