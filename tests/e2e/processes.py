"""Finding the binaries, waiting with a deadline, talking to a server: what all e2e tests share."""
import hashlib
import http.client
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin"))
BATON = BIN / "baton"
# Of every wait in here; a sanitizer build on a busy machine is slow, and nothing waits in vain.
DEADLINE_S = 120
POLL_S = 0.02


def wait_for(condition, what, deadline_s=DEADLINE_S):
    """The first true value of condition(); AssertionError naming `what` when the time is over."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s} s in vain for {what}")
        time.sleep(POLL_S)


def clean_environment():
    """Options come from the arguments alone: whoever runs the tests may have set BATON_MODEL."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("BATON_") or name == "BATON_ISA"}


def run(*arguments, stdin="", deadline_s=DEADLINE_S):
    """A command to its end. Its words are UTF-8, taken as they are: no newline is translated."""
    result = subprocess.run([str(argument) for argument in arguments], input=stdin.encode(),
                            capture_output=True, env=clean_environment(), timeout=deadline_s,
                            check=False)
    result.stdout = result.stdout.decode("utf-8", "surrogateescape")
    result.stderr = result.stderr.decode("utf-8", "surrogateescape")
    return result


def alive(pid):
    """A zombie counts as gone: nobody but its parent can do more about it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def thread_states(pid):
    """The letters of ps(1), one a thread; empty when the process is gone."""
    states = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(path.read_text().rsplit(")", 1)[1].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return states


def all_stopped(pid):
    return set(thread_states(pid)) == {"T"}


def is_sanitized():
    """A sanitizer keeps freed memory aside on purpose."""
    program = BATON.read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def real_model():
    """The default model, or a skipped test."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    path = pathlib.Path(os.environ.get("BATON_MODEL")
                        or cache / "baton" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not path.is_file():
        raise unittest.SkipTest(f"the real model {path} is not there")
    return path


def python_package(name):
    """A module of ops/python.txt's packages, or the test skips."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    listed = hashlib.sha256((ROOT / "ops" / "python.txt").read_bytes()).hexdigest()[:12]
    path = pathlib.Path(os.environ.get("BATON_PYTHON_PACKAGES")
                        or cache / "baton" / f"python-{listed}")
    if not (path / ".complete").is_file():
        raise unittest.SkipTest(f"the packages of ops/python.txt are not in {path}; ops/test puts "
                                "them there")
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module(name)
    except ImportError as error:  # of another Python than this one
        raise unittest.SkipTest(f"{name} in {path}: {error}") from error


def shared_folder():
    path = pathlib.Path(os.environ.get("BATON_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        raise unittest.SkipTest(f"the reference data {path} is not there")
    return path


class Answer:
    """A response that was read to its end."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Events:
    """The server-sent events of a response, one by one as they come."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.status = response.status
        self.done = False

    def __iter__(self):
        data = []
        while True:
            line = self.response.readline()
            if not line:
                self.close()
                return
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data: "):
                data.append(line[6:])
            elif not line and data:
                text, data = b"\n".join(data), []
                if text == b"[DONE]":
                    self.done = True
                    continue
                yield json.loads(text)

    def close(self):
        self.response.close()
        self.connection.close()


class Client:
    """One server; every call is a connection of its own."""

    def __init__(self, url):
        self.url = url
        self.address = urllib.parse.urlsplit(url).netloc

    def _send(self, method, path, body, headers):
        connection = http.client.HTTPConnection(self.address, timeout=DEADLINE_S)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()

    def call(self, method, path, body=None, headers=None):
        connection, response = self._send(method, path, body, headers)
        answer = Answer(response.status, response.headers, response.read())
        connection.close()
        return answer

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body):
        return self.call("POST", path, body)

    def stream(self, path, body):
        connection, response = self._send("POST", path, {**body, "stream": True}, None)
        if response.status != 200:
            raise AssertionError(f"{path} answered {response.status}: {response.read()!r}")
        return Events(connection, response)

    def chat(self, text, **fields):
        return self.post("/v1/chat/completions",
                         {"messages": [{"role": "user", "content": text}], **fields})

    def chat_stream(self, text, **fields):
        return self.stream("/v1/chat/completions",
                           {"messages": [{"role": "user", "content": text}], **fields})

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def complete_stream(self, prompt, **fields):
        return self.stream("/v1/completions", {"prompt": prompt, **fields})

    def metric(self, name, **labels):
        """The sum of the series of that name which carry all these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            series_name, _, rest = series.partition("{")
            if series_name == name and all(f'{k}="{v}"' in rest for k, v in labels.items()):
                total, found = total + float(value), True
        if not found:
            raise AssertionError(f"no series {name} {labels}")
        return total


def chat_text(answer):
    return answer.json()["choices"][0]["message"]["content"]


def stream_text(events):
    """All text of a stream; the events must be of one choice."""
    text = ""
    for event in events:
        if "error" in event:
            raise AssertionError(f"error event: {event}")
        for choice in event["choices"]:
            text += choice.get("text", "") or choice.get("delta", {}).get("content", "") or ""
    return text
