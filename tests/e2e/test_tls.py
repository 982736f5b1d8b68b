"""Clients that speak TLS to the router: the same API, the same refusals, and who can not."""
import http.client
import json
import os
import pathlib
import socket
import ssl
import tempfile
import unittest

from cluster import Cluster, Router, tiny_model
from processes import BATON, DEADLINE_S, run, wait_for


def make_certificate(folder, name, kind=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = run("openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-keyout", key, "-out", cert,
               "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    if made.returncode != 0:
        raise AssertionError(f"openssl req: {made.stderr}")
    os.chmod(key, 0o600)
    return cert, key


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="baton-tls-")
        cls.folder = pathlib.Path(cls.scratch.name)
        cert, key = make_certificate(cls.folder, "router")
        cls.cluster = Cluster(env={"BATON_HTTP_CERT": str(cert), "BATON_HTTP_KEY": str(key),
                                   "BATON_MAX_BODY": "64K"})
        cls.context = ssl.create_default_context(cafile=str(cert))
        cls.address = cls.cluster.client.address
        cls.host, port = cls.address.rsplit(":", 1)
        cls.port = int(port)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()
        cls.scratch.cleanup()

    def connect(self, context=None):
        return http.client.HTTPSConnection(self.address, timeout=DEADLINE_S,
                                           context=context or self.context)

    def ask(self, connection, method, path, body=None):
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    def dial(self, context=None):
        with socket.create_connection((self.host, self.port), DEADLINE_S) as plain:
            stream = (context or self.context).wrap_socket(plain, server_hostname=self.host)
        self.addCleanup(stream.close)
        return stream

    def test_answers_and_streams_on_one_connection(self):
        connection = self.connect()
        self.addCleanup(connection.close)
        self.assertEqual(self.ask(connection, "GET", "/health")[0], 200)
        fields = {"prompt": "Hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        status, body = self.ask(connection, "POST", "/v1/completions", fields)
        self.assertEqual(status, 200, body)
        text = json.loads(body)["choices"][0]["text"]
        status, body = self.ask(connection, "POST", "/v1/completions", {**fields, "stream": True})
        self.assertEqual(status, 200, body)
        events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        pieces = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
        self.assertEqual("".join(pieces), text)

    def test_long_bodies_come_whole(self):
        connection = self.connect()
        self.addCleanup(connection.close)
        words = "word " * 2000
        status, body = self.ask(connection, "POST", "/tokenize", {"prompt": words})
        self.assertEqual(status, 200, body)
        status, body = self.ask(connection, "POST", "/detokenize",
                                {"tokens": json.loads(body)["tokens"]})
        self.assertEqual(json.loads(body)["prompt"], words)

    def test_refusals_come_through(self):
        for request, status in ((b"BREW / HTTP/1.1\r\nHost: t\r\n\r\n", b"501"),
                                (b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n"
                                 b"Content-Length: 1000000\r\n\r\n" + b"x" * 1000000, b"413")):
            stream = self.dial()
            stream.sendall(request)
            answer = b""
            while chunk := stream.recv(65536):
                answer += chunk
            head, _, body = answer.partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 " + status), answer)
            self.assertIn("error", json.loads(body))

    def test_a_client_that_leaves_is_noticed(self):
        def running():
            connection = self.connect()
            status, body = self.ask(connection, "GET", "/load")
            connection.close()
            self.assertEqual(status, 200)
            return json.loads(body)["server_load"]
        stream = self.dial()
        body = json.dumps({"prompt": "Hello", "max_tokens": 2000, "ignore_eos": True,
                           "stream": True}).encode()
        stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: "
                       b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertIn(b"200 OK", stream.recv(1000))
        stream.close()
        wait_for(lambda: running() == 0, "the request to end with its client")

    def test_who_does_not_speak_tls_gets_nowhere(self):
        with socket.create_connection((self.host, self.port), DEADLINE_S) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
            answer = b""
            try:
                while chunk := plain.recv(4096):
                    answer += chunk
            except ConnectionResetError:
                pass
            self.assertNotIn(b"HTTP/1.1", answer)

    def test_a_stranger_is_not_believed(self):
        cert, _ = make_certificate(self.folder, "stranger")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.dial(ssl.create_default_context(cafile=str(cert)))


class TlsRouterTest(unittest.TestCase):
    """A router by itself."""

    def test_the_time_for_a_greeting_ends(self):
        folder = tempfile.TemporaryDirectory(prefix="baton-tls-")
        self.addCleanup(folder.cleanup)
        cert, key = make_certificate(pathlib.Path(folder.name), "router")
        router = Router("--http-cert", cert, "--http-key", key, "--read-timeout-ms", "300")
        self.addCleanup(router.close)
        with socket.create_connection(router.address, DEADLINE_S) as silent:
            self.assertEqual(silent.recv(1), b"")

    def test_what_can_not_be_used_is_one_sentence(self):
        with tempfile.TemporaryDirectory(prefix="baton-tls-") as folder:
            folder = pathlib.Path(folder)
            cert, key = make_certificate(folder, "one")
            _, other = make_certificate(folder, "two")
            of_another_kind, _ = make_certificate(folder, "three", ("rsa:2048",))
            nothing = folder / "nothing"
            nothing.write_text("nothing\n")
            for options, words in (
                    (("--http-cert", cert), "belong together"),
                    (("--http-cert", cert, "--http-key", other), "key values mismatch"),
                    (("--http-cert", of_another_kind, "--http-key", key), "--http-key: "),
                    (("--http-cert", nothing, "--http-key", key), "--http-cert: "),
                    (("--http-cert", cert, "--http-key", nothing), "--http-key: "),
                    (("--http-cert", folder / "no", "--http-key", key), "can not")):
                with self.subTest(words=words):
                    ended = run(BATON.parent / "baton-router", "--model", tiny_model(), "--http",
                                "127.0.0.1:0", "--control", "127.0.0.1:0", "--state-dir",
                                folder / "state", *options)
                    self.assertEqual(ended.returncode, 1, ended.stderr)
                    sentence = ended.stderr.splitlines()[-1]
                    self.assertIn(words, sentence)


if __name__ == "__main__":
    unittest.main(verbosity=2)
