"""`baton ask` by itself, against a server that sends exactly what a case says."""
import http.server
import json
import pathlib
import socket
import tempfile
import threading
import unittest

from processes import BATON, run

TIMINGS = {"queue_ms": 0.5, "prefill_ms": 21.25, "cached_tokens": 0, "handoff_ms": 2.0,
           "handoff_bytes": 4194304, "handoff_wait_ms": 0.25, "decode_queue_ms": 0.75,
           "first_step_ms": 12.0, "decode_ms": 300.0, "ttft_ms": 22.5, "tokens_per_s": 66.5}


def chunk(**fields):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], **fields}


def text_chunk(text):
    return chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}])


def stream(*events, done=True):
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return body + (b"data: [DONE]\n\n" if done else b"")


GOOD = stream(
    chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]),
    text_chunk("A bat\u00f6n, "), text_chunk("passed on."),
    chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
    chunk(usage={"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38},
          timings=TIMINGS))


class Server:
    """Answers every POST with one status and body, in pieces of `piece` bytes."""

    def __init__(self, body, status=200, content_type="text/event-stream", piece=None):
        server = self
        self.requests, self.keys = [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                server.requests.append((self.path, json.loads(self.rfile.read(length))))
                server.keys.append(self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.end_headers()
                step = piece or max(len(body), 1)
                for start in range(0, len(body), step):
                    self.wfile.write(body[start:start + step])
                    self.wfile.flush()

            def log_message(self, *arguments):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class AskTest(unittest.TestCase):
    def ask(self, body, *arguments, stdin="", **server_arguments):
        server = Server(body, **server_arguments)
        self.addCleanup(server.close)
        result = run(BATON, "ask", "--url", server.url, *arguments, stdin=stdin)
        return result, server

    def test_answer_and_timeline(self):
        result, server = self.ask(GOOD, "What is handed on?")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "A bat\u00f6n, passed on.\n")
        for words in ("router queue         0.5 ms", "prefill             21.2 ms   31 tokens",
                      "hand-off             2.0 ms   4.00 MiB, from the first page",
                      "66.5 tokens/s", "7 tokens, finished by stop", "first token         22.5 ms"):
            self.assertIn(words, result.stderr)
        (path, body), = server.requests
        self.assertEqual(path, "/v1/chat/completions")
        self.assertEqual(body, {
            "messages": [{"role": "user", "content": "What is handed on?"}], "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}, "timings": True})

    def test_options_reach_the_request(self):
        _, server = self.ask(GOOD, "--model-name", "m", "--system", "Be \"brief\".", "--max-tokens",
                             "9", "--temperature", "0.5", "-", stdin="from\nstdin")
        body = server.requests[0][1]
        self.assertEqual(body["model"], "m")
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be \"brief\"."},
                                            {"role": "user", "content": "from\nstdin"}])
        self.assertEqual((body["max_tokens"], body["temperature"]), (9, 0.5))

    def test_chat_template_is_the_file(self):
        with tempfile.TemporaryDirectory(prefix="baton-ask-") as folder:
            template = pathlib.Path(folder) / "t.jinja"
            template.write_text("{{ messages[0]['content'] }}\n\u00f6")
            _, server = self.ask(GOOD, "--template", str(template), "x")
            self.assertEqual(server.requests[0][1]["chat_template"],
                             "{{ messages[0]['content'] }}\n\u00f6")
            template.write_text(" " * ((1 << 20) + 1))
            for path, wanted in ((template, "has more than 1048576 bytes"),
                                 (template.with_name("none"), "cannot open")):
                result, server = self.ask(GOOD, "--template", str(path), "x")
                self.assertEqual(result.returncode, 1)
                self.assertIn(wanted, result.stderr)
                self.assertEqual(server.requests, [])

    def test_any_split_of_the_stream(self):
        for piece in (1, 2, 3, 7):
            with self.subTest(piece=piece):
                result, _ = self.ask(GOOD, "x", piece=piece)
                self.assertEqual(result.stdout, "A bat\u00f6n, passed on.\n")

    def test_carriage_returns_comments_and_split_data(self):
        event = json.dumps(text_chunk("ok"))
        middle = event.index('"choices"')
        body = (": keep-alive\r\n\r\nevent: message\r\nid: 3\r\n"
                f"data: {event[:middle]}\r\ndata:{event[middle:]}\r\n\r\n"
                "data: [DONE]\r\n\r\n").encode()
        result, _ = self.ask(body, "x")
        self.assertEqual((result.returncode, result.stdout), (0, "ok\n"), result.stderr)

    def test_json(self):
        result, _ = self.ask(GOOD, "--json", "x")
        answer = json.loads(result.stdout)
        self.assertEqual(answer["text"], "A bat\u00f6n, passed on.")
        self.assertEqual(answer["timings"], TIMINGS)
        self.assertEqual(answer["usage"], {"prompt_tokens": 31, "completion_tokens": 7})
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(result.stderr, "")

    def test_server_without_timings(self):
        result, _ = self.ask(stream(text_chunk("hi")), "x")
        self.assertEqual(result.returncode, 0)
        self.assertIn("first text", result.stderr)
        self.assertNotIn("prefill", result.stderr)

    def assert_fails(self, result, sentence):
        self.assertEqual(result.returncode, 1)
        self.assertIn(sentence, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_error_event(self):
        body = stream(text_chunk("half an"), {"error": {"message": "decode-0 is gone"}}, done=False)
        result, _ = self.ask(body, "x")
        self.assert_fails(result, "baton ask: decode-0 is gone")
        self.assertEqual(result.stdout, "half an\n")

    def test_broken_off(self):
        result, _ = self.ask(stream(text_chunk("half"), done=False), "x")
        self.assert_fails(result, "the answer broke off before [DONE]")

    def test_http_errors(self):
        body = json.dumps({"error": {"message": "no decode node", "code": None}}).encode()
        result, _ = self.ask(body, "x", status=503, content_type="application/json")
        self.assert_fails(result, "answered 503: no decode node")
        result, _ = self.ask(b"<html>bad gateway</html>", "x", status=502)
        self.assert_fails(result, "answered 502: <html>bad gateway</html>")
        result, _ = self.ask(b"", "x", status=500)
        self.assert_fails(result, "answered 500: an empty body")

    def test_not_a_stream(self):
        result, _ = self.ask(b"data: {\"hello\":1}\n\n", "x")
        self.assert_fails(result, "no chat completion chunk")
        result, _ = self.ask(b"data: nonsense\n\n", "x")
        self.assertEqual(result.returncode, 1)

    def test_nobody_there(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = run(BATON, "ask", "--url", f"http://127.0.0.1:{free.getsockname()[1]}", "x")
        self.assert_fails(result, "nobody listens at http://127.0.0.1:")

    def test_a_key_is_shown(self):
        _, server = self.ask(GOOD, "--api-key", "sk-one", "x")
        self.assertEqual(server.keys, ["Bearer sk-one"])
        _, server = self.ask(GOOD, "x")
        self.assertEqual(server.keys, [None])
        for key in ("", "a b", "a\r\nX: y"):
            result, server = self.ask(GOOD, "--api-key", key, "x")
            self.assert_fails(result, "--api-key is not one word")
            self.assertEqual(server.keys, [])

    def test_usage(self):
        self.assertEqual(run(BATON, "ask").returncode, 2)
        self.assertEqual(run(BATON, "ask", "two", "prompts").returncode, 2)
        self.assertEqual(run(BATON, "ask", "--temperature", "3", "x").returncode, 2)
        self.assert_fails(run(BATON, "ask", ""), "the prompt is empty")


if __name__ == "__main__":
    unittest.main(verbosity=2)
