"""Whatever keeps a program from starting: an exit code, one sentence with value and limit."""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from cluster import Cluster, tiny_model
from processes import BATON, BIN, run

ROUTER, PREFILL, DECODE = BIN / "baton-router", BIN / "baton-prefill", BIN / "baton-decode"
# Nobody listens there: programs that fail must do so before they would wait for a router.
DAEMONS = (
    ("baton-router", [ROUTER, "--http", "127.0.0.1:0", "--control", "127.0.0.1:0"]),
    ("baton-prefill", [PREFILL, "--router", "127.0.0.1:9"]),
    ("baton-decode", [DECODE, "--router", "127.0.0.1:9"]),
)
ALL = (*DAEMONS, ("baton run", [BATON, "run", "prompt"]))


class StartTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="baton-start-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def with_state(self, command):
        return [*command, "--state-dir", self.folder] if command[0] == ROUTER else command

    def assert_sentence(self, result, *words):
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.strip().splitlines()[-1]
        for word in words:
            self.assertIn(word, last)
        self.assertNotIn("Sanitizer", result.stderr)

    def bad_models(self):
        whole = tiny_model().read_bytes()
        # What a program reads of the file decides what it can notice: the router reads no weights,
        # but every one checks that they are all there.
        yield "empty", b""
        yield "not a model", b"This is no model.\n" * 100
        yield "cut in the header", whole[:200]
        yield "cut in the weights", whole[:-1000]

    def test_bad_models(self):
        for what, content in self.bad_models():
            model = self.folder / "model.gguf"
            model.write_bytes(content)
            for name, command in ALL:
                with self.subTest(program=name, model=what):
                    result = run(*self.with_state(command), "--model", model)
                    self.assert_sentence(result, "model.gguf")

    def test_absent_model(self):
        for name, command in ALL:
            with self.subTest(program=name):
                result = run(*self.with_state(command), "--model", self.folder / "none.gguf")
                self.assert_sentence(result, "none.gguf", "No such file")

    def test_unknown_architecture(self):
        content = tiny_model().read_bytes()
        key = b"general.architecture"
        at = content.index(key) + len(key)
        name = content.index(b"llama", at)
        self.assertLess(name - at, 16)
        model = self.folder / "model.gguf"
        model.write_bytes(content[:name] + b"alpca" + content[name + 5:])
        for name, command in ALL[1:]:
            with self.subTest(program=name):
                result = run(*self.with_state(command), "--model", model)
                self.assert_sentence(result, "alpca")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for option, other in (("--http", "--control"), ("--control", "--http")):
                with self.subTest(option=option):
                    result = run(ROUTER, "--model", tiny_model(), option, address, other,
                                 "127.0.0.1:0", "--state-dir", self.folder)
                    self.assert_sentence(result, address, "in use")
            result = run(BATON, "up", "--model", tiny_model(), "--http", address, "--workdir",
                         self.folder / "work")
            self.assert_sentence(result, "router", address, "in use")

    def test_wrong_options(self):
        for name, command in DAEMONS:
            with self.subTest(program=name):
                result = run(*command, "--model", tiny_model(), "--treads", "2")
                self.assertEqual(result.returncode, 2)
                self.assertIn("--treads", result.stderr)
        result = run(PREFILL, "--model", tiny_model(), "--threads", "many")
        self.assertEqual(result.returncode, 2)
        self.assertIn("many", result.stderr)

    def test_addresses_beyond_this_host_need_a_secret(self):
        beyond = ((ROUTER, "--control"), (PREFILL, "--router"), (DECODE, "--router"),
                  (DECODE, "--data"))
        for program, option in beyond:
            with self.subTest(program=program.name, option=option):
                result = run(*self.with_state([program]), "--model", tiny_model(), option,
                             "192.0.2.7:7700")
                self.assert_sentence(result, "192.0.2.7:7700", "--secret-file", "--insecure")

    def test_bad_secret_files(self):
        secret = self.folder / "secret"
        for content, word in ((b"too short\n", "9 bytes"), (b"x" * 5000, "4096")):
            secret.write_bytes(content)
            for name, command in DAEMONS:
                with self.subTest(program=name, content=content[:10]):
                    result = run(*self.with_state(command), "--model", tiny_model(),
                                 "--secret-file", secret)
                    self.assert_sentence(result, str(secret), word)
        for name, command in DAEMONS:
            result = run(*self.with_state(command), "--model", tiny_model(), "--secret-file",
                         self.folder / "none")
            self.assert_sentence(result, "none", "No such file")

    def test_wrong_faults(self):
        for name, command in DAEMONS:
            with self.subTest(program=name):
                result = run(*self.with_state(command), "--model", tiny_model(),
                             "--enable-fault-injection", "--fault", "coffee:spill")
                self.assert_sentence(result, "coffee", "data-send")

    def make_certificate(self, name, authority):
        """NAME.pem and NAME.key by AUTHORITY, or by itself."""
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
               f"{name}.key", "-subj", f"/CN={name}"]
        signed = ["openssl", "req", "-x509", *key, "-out", f"{name}.pem", "-days", "2"]
        if name != authority:
            signed += ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"]
        subprocess.run(signed, cwd=self.folder, check=True, capture_output=True)

    @unittest.skipUnless(shutil.which("openssl"), "the openssl command is not there")
    def test_nodes_with_certificates(self):
        for name in ("authority", "node"):
            self.make_certificate(name, "authority")
        cluster = Cluster(options=("--mover", "tls"), env={
            "BATON_TLS_CERT": str(self.folder / "node.pem"),
            "BATON_TLS_KEY": str(self.folder / "node.key"),
            "BATON_TLS_CA": str(self.folder / "authority.pem")})
        self.addCleanup(cluster.close)
        self.assertEqual(cluster.client.complete("x" * 200, max_tokens=5).status, 200)
        self.assertEqual(cluster.client.metric("baton_placements_total", reason="pair"), 1)

    def test_tls_options_that_do_not_fit(self):
        for options, code, words in (
                (("--tls-cert", "a"), 2, ("--tls-ca", "belong together")),
                (("--mover", "tls"), 1, ("--secret-file", "--tls-cert")),
                (("--mover", "pigeon"), 1, ("pigeon", "tls")),
                (("--mover", "loopback"), 1, ("loopback", "tls"))):
            with self.subTest(options=options):
                result = run(DECODE, "--model", tiny_model(), "--router", "127.0.0.1:9", *options)
                self.assertEqual(result.returncode, code)
                for word in words:
                    self.assertIn(word, result.stderr)

    def test_worker_with_another_secret(self):
        """Turned away in words, counted, and the cluster goes on."""
        cluster = Cluster()
        self.addCleanup(cluster.close)
        made = cluster.work / "secret"
        self.assertEqual(made.stat().st_mode & 0o7777, 0o600)
        address = cluster.control()
        secret = self.folder / "secret"
        secret.write_text("another secret of this kind\n")
        secret.chmod(0o600)
        for options in ((), ("--secret-file", secret)):
            with self.subTest(options=options):
                result = run(PREFILL, "--model", tiny_model(), "--router", address, *options)
                self.assert_sentence(result, "no router takes this worker", "--secret-file")
        self.assertGreaterEqual(cluster.client.metric("baton_links_unproven_total"), 1)
        self.assertEqual(cluster.client.chat("Hello", max_tokens=3).status, 200)

    def test_help_and_version(self):
        for command in (ROUTER, PREFILL, DECODE):
            self.assertIn("--model", run(command, "--help").stdout)
        self.assertRegex(run(BATON, "--version").stdout, r"^baton \d+\.\d+\.\d+\n$")

    def test_context_that_does_not_fit(self):
        result = run(DECODE, "--model", tiny_model(), "--router", "127.0.0.1:9", "--kv-memory",
                     "1K")
        # The need and what there would be, in units a person thinks in.
        self.assert_sentence(result, "2048 tokens", "MiB", "(0 tokens)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
