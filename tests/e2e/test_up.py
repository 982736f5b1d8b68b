"""`baton up` by itself, over daemons that only play their part."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from processes import BATON, DEADLINE_S, alive, clean_environment, run, wait_for

HERE = pathlib.Path(__file__).resolve().parent
DAEMONS = ("baton-router", "baton-prefill", "baton-decode")


class Up:
    """A running `baton up` over fake daemons in a folder of its own."""

    def __init__(self, folder, *arguments, scripts=None, daemons=DAEMONS):
        self.folder = pathlib.Path(folder)
        self.work = self.folder / "work"
        self.ready_file = self.folder / "ready.json"
        shutil.copy(BATON, self.folder / "baton")
        for name in daemons:
            shutil.copy(HERE / "fake_daemon.py", self.folder / name)
            os.chmod(self.folder / name, 0o755)
        for name, script in (scripts or {}).items():
            self.script(name, script)
        self.model = self.folder / "model.gguf"
        self.model.write_bytes(b"not read by anyone here")
        environment = {**clean_environment(), "FAKE_DIR": str(self.folder)}
        self.stderr_path = self.folder / "stderr"
        with open(self.stderr_path, "w") as stderr:
            self.process = subprocess.Popen(
                [str(self.folder / "baton"), "up", "--model", str(self.model), "--workdir",
                 str(self.work), "--ready-file", str(self.ready_file), *arguments],
                stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)

    def script(self, name, script):
        (self.folder / f"{name}.json").write_text(json.dumps(script))

    def argv(self, name):
        lines = (self.folder / f"{name}.argv").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def stderr(self):
        return self.stderr_path.read_text()

    def pids(self):
        try:
            return json.loads(self.ready_file.read_text())["pids"]
        except FileNotFoundError:
            return {}

    def wait_ready(self, count):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"baton up has ended: {self.stderr()}")
            pids = self.pids()
            return len(pids) == count and pids
        return wait_for(ready, f"{count} ready daemons")

    def wait_end(self):
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, output

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait_end()


class UpTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-up-")
        self.addCleanup(self.scratch.cleanup)

    def start(self, *arguments, **named):
        up = Up(self.scratch.name, *arguments, **named)
        self.addCleanup(lambda: up.process.poll() is not None or up.stop())
        return up

    def assert_gone(self, pids):
        for name, pid in pids.items():
            wait_for(lambda pid=pid: not alive(pid), f"the end of {name}")

    def test_starts_tells_and_stops(self):
        up = self.start("--prefill", "2", "--decode", "2")
        pids = up.wait_ready(5)
        self.assertEqual(set(pids), {"router", "prefill-0", "prefill-1", "decode-0", "decode-1"})
        code, output = up.stop()
        self.assertEqual(code, 0, up.stderr())
        self.assertIn("http://127.0.0.1:18000", output)
        self.assertIn("curl http://127.0.0.1:18000/v1/chat/completions", output)
        self.assertIn(str(pids["decode-1"]), output)
        self.assert_gone(pids)
        self.assertFalse(up.ready_file.exists())
        self.assertIn("begins", (up.work / "decode-0.log").read_text())

    def test_sigint_stops_too(self):
        up = self.start()
        pids = up.wait_ready(3)
        up.process.send_signal(signal.SIGINT)
        self.assertEqual(up.wait_end()[0], 0)
        self.assert_gone(pids)

    def test_passes_options_on(self):
        up = self.start("--threads", "3", "--kv-dtype", "f32", "--kv-memory", "64M", "--context",
                        "512", "--max-batch", "7", "--chunk-tokens", "96", "--model-name", "relay",
                        "--http", "127.0.0.1:0")
        up.wait_ready(3)
        up.stop()
        router, = up.argv("router")
        prefill, = up.argv("prefill-0")
        decode, = up.argv("decode-0")

        def value(argv, option):
            return argv[argv.index(option) + 1]
        self.assertEqual(value(router, "--model-name"), "relay")
        self.assertEqual(value(router, "--http"), "127.0.0.1:0")
        self.assertEqual(value(router, "--control"), "127.0.0.1:0")
        for argv in (router, prefill, decode):
            self.assertEqual(value(argv, "--secret-file"), str(up.work / "secret"))
        for worker in (prefill, decode):
            self.assertEqual(value(worker, "--router"), "127.0.0.1:17700")
            self.assertEqual(value(worker, "--threads"), "3")
            self.assertEqual(value(worker, "--kv-dtype"), "f32")
            self.assertEqual(value(worker, "--kv-memory"), str(64 << 20))
            self.assertEqual(value(worker, "--context"), "512")
            self.assertEqual(value(worker, "--chunk-tokens"), "96")
        self.assertEqual(value(decode, "--max-batch"), "7")
        self.assertEqual(value(decode, "--data"), "127.0.0.1:0")
        self.assertNotIn("--max-batch", prefill)

    def test_each_model_has_its_nodes(self):
        other = pathlib.Path(self.scratch.name) / "other=1.gguf"
        other.write_bytes(b"nor is this")
        up = self.start("--model", f"b={other}", "--decode", "2", "--chat-template", "b=x.jinja",
                        "--chat-template", "y.jinja")
        pids = up.wait_ready(7)
        output = up.stop()[1]
        self.assertEqual(set(pids), {"router", "prefill-0", "prefill-1", "decode-0", "decode-1",
                                     "decode-2", "decode-3"})
        self.assertIn("model and b are served at http://127.0.0.1:18000", output)
        self.assertRegex(output, r"decode-1 +pid \d+, model model,")
        self.assertRegex(output, r"decode-2 +pid \d+, model b,")

        def values(name, option):
            argv, = up.argv(name)
            return [argv[i + 1] for i, word in enumerate(argv) if word == option]
        self.assertEqual(values("router", "--model"), [str(up.model), f"b={other}"])
        self.assertEqual(values("router", "--chat-template"), ["b=x.jinja", "y.jinja"])
        for name, model, path in (("prefill-0", "model", up.model), ("decode-1", "model", up.model),
                                  ("prefill-1", "b", other), ("decode-2", "b", other)):
            self.assertEqual(values(name, "--model-name"), [model])
            self.assertEqual(values(name, "--model"), [str(path)])

    def test_models_that_cannot_be(self):
        for options, wanted in (
                (["--model", "b=/nowhere/b.gguf"], "the model /nowhere/b.gguf cannot be opened"),
                (["--model", f"b={BATON}", "--model-name", "x"], "say --model NAME=FILE"),
                (["--model", f"b={BATON}", "--decode", "16"], "2 models with 1 prefill and 16")):
            up = self.start(*options)
            self.assertEqual(up.wait_end()[0], 1)
            self.assertIn(wanted, up.stderr())

    def test_nodes_divide_the_memory(self):
        """Each takes its share of the same part, which together are less than what there is."""
        available = 1024 * int(re.search(r"MemAvailable: +(\d+)",
                                         pathlib.Path("/proc/meminfo").read_text()).group(1))
        parts = []
        for options in ((), ("--kv-memory", "62.5%", "--kv-prefault")):
            up = self.start("--prefill", "1", "--decode", "3", *options)
            up.wait_ready(5)
            up.stop()
            for name in ("prefill-0", "decode-0", "decode-1", "decode-2"):
                argv = up.argv(name)[-1]
                parts.append(int(argv[argv.index("--kv-memory-of") + 1]))
                self.assertEqual("--kv-prefault" in argv, bool(options))
                self.assertEqual("--kv-memory" in argv, bool(options))
                if options:
                    self.assertEqual(argv[argv.index("--kv-memory") + 1], "62.5%")
        self.assertEqual(len(set(parts[:4])), 1)
        self.assertGreater(parts[0], 0)
        self.assertLess(4 * parts[0], 1.5 * available)

    def test_weights_of_a_folder_are_no_memory_for_pages(self):
        """Those of two nodes take half of what there is: the rest is divided."""
        available = 1024 * int(re.search(r"MemAvailable: +(\d+)",
                                         pathlib.Path("/proc/meminfo").read_text()).group(1))
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch.name))
        for name in ("config.json", "model-1.safetensors", "model-2.safetensors"):
            with open(folder / name, "wb") as file:
                file.truncate(0 if name == "config.json" else available // 8)
        up = self.start("--model", f"b={folder}")
        up.wait_ready(5)
        up.stop()
        argv = up.argv("decode-1")[-1]
        self.assertLess(4 * int(argv[argv.index("--kv-memory-of") + 1]), 0.75 * available)

    def test_secret_is_made_once_or_given(self):
        up = self.start()
        up.wait_ready(3)
        secret = up.work / "secret"
        self.assertEqual(secret.stat().st_mode & 0o7777, 0o600)
        content = secret.read_bytes()
        self.assertEqual(len(content), 65)
        up.stop()
        again = self.start("--secret-file", str(secret))
        again.wait_ready(3)
        self.assertEqual(secret.read_bytes(), content)
        argv = again.argv("router")[-1]
        self.assertEqual(argv[argv.index("--secret-file") + 1], str(secret))

    def test_faults_reach_the_first_process_of_a_name(self):
        up = self.start("--fault", "decode-0=grant:2:drop,landed:stop", "--fault",
                        "router=dispatch:refuse")
        before = up.wait_ready(3)
        for name, fault in (("decode-0", "grant:2:drop,landed:stop"),
                            ("router", "dispatch:refuse")):
            argv = up.argv(name)[-1]
            self.assertIn("--enable-fault-injection", argv)
            self.assertEqual(argv[argv.index("--fault") + 1], fault)
        self.assertNotIn("--fault", up.argv("prefill-0")[-1])
        os.kill(before["decode-0"], signal.SIGKILL)
        wait_for(lambda: up.pids().get("decode-0", before["decode-0"]) != before["decode-0"],
                 "a new decode-0")
        first, second = up.argv("decode-0")
        self.assertEqual(first[:-3], second)

    def test_faults_of_nobody(self):
        for fault, word in (("decode-9=grant:drop", "decode-9"), ("grant:drop", "grant:drop"),
                            ("decode-0", "decode-0")):
            up = self.start("--fault", fault)
            self.assertEqual(up.wait_end()[0], 1)
            self.assertIn(word, up.stderr())
            self.assertIn("--fault", up.stderr())
        up = self.start("--fault", "router=dispatch:drop", "--fault", "router=token-in:drop")
        self.assertEqual(up.wait_end()[0], 1)
        self.assertIn("named twice", up.stderr())

    def test_colocated_has_no_prefill(self):
        up = self.start("--prefill", "0")
        self.assertEqual(set(up.wait_ready(2)), {"router", "decode-0"})
        self.assertEqual(up.stop()[0], 0)

    def test_killed_worker_comes_back(self):
        up = self.start()
        before = up.wait_ready(3)
        os.kill(before["decode-0"], signal.SIGKILL)
        after = wait_for(lambda: up.pids().get("decode-0", before["decode-0"]) !=
                         before["decode-0"] and up.pids(), "a new decode-0")
        self.assertEqual(after["router"], before["router"])
        self.assertEqual(after["prefill-0"], before["prefill-0"])
        self.assertIn("decode-0 was killed by signal 9 (Killed)", up.stderr())
        self.assertIn("the last line of its log is: fake daemon decode-0 begins", up.stderr())
        first, second = up.argv("decode-0")
        self.assertEqual(first, second)
        self.assertEqual(up.stop()[0], 0)

    def test_worker_that_stays_broken_is_tried_ever_later(self):
        up = self.start()
        pids = up.wait_ready(3)
        up.script("prefill-0", {"lines": ["FAILED=the model is gone"], "exit": 1})
        os.kill(pids["prefill-0"], signal.SIGKILL)
        wait_for(lambda: "(death 4)" in up.stderr(), "the fourth death")
        self.assertIn("exited with code 1: the model is gone", up.stderr())
        for pause in (200, 400, 800, 1600):
            self.assertIn(f"again in {pause} ms", up.stderr())
        self.assertEqual(up.stop()[0], 0)

    def test_dead_router_ends_all(self):
        up = self.start()
        pids = up.wait_ready(3)
        os.kill(pids["router"], signal.SIGKILL)
        code, _ = up.wait_end()
        self.assertEqual(code, 1)
        self.assertIn("router was killed by signal 9", up.stderr())
        self.assert_gone(pids)

    def test_failure_at_start_is_told(self):
        up = self.start(scripts={"router": {
            "lines": ["FAILED=127.0.0.1:8000 is in use"], "exit": 1}})
        code, _ = up.wait_end()
        self.assertEqual(code, 1)
        self.assertEqual(up.stderr().splitlines()[-1],
                         "baton up: router exited with code 1: 127.0.0.1:8000 is in use")
        self.assertFalse((up.folder / "prefill-0.argv").exists())

    def test_worker_failure_at_start_stops_the_rest(self):
        up = self.start(scripts={"decode-0": {"log": "no memory for it", "exit": 3}})
        code, _ = up.wait_end()
        self.assertEqual(code, 1)
        self.assertIn("decode-0 exited with code 3; the last line of its log is: no memory for it",
                      up.stderr())

    def test_late_worker_is_named(self):
        # Long enough for the others to be ready on a busy machine.
        up = self.start("--start-timeout", "8s", scripts={
            "prefill-0": {"late": True, "lines": ["STATUS=loading model 40 %"]}})
        code, _ = up.wait_end()
        self.assertEqual(code, 1)
        last = up.stderr().splitlines()[-1]
        self.assertIn("not ready within 8000 ms: prefill-0 (loading model 40 %, log ", last)
        self.assertNotIn("decode-0", last)
        self.assertIn("prefill-0: loading model 40 %", up.stderr())

    def test_deaf_daemon_is_killed(self):
        up = self.start("--stop-timeout", "300ms", scripts={"decode-0": {"deaf": True}})
        pids = up.wait_ready(3)
        code, _ = up.stop()
        self.assertEqual(code, 0)
        self.assertIn("decode-0", up.stderr())
        self.assertIn("is killed: it did not stop in time", up.stderr())
        self.assert_gone(pids)

    def test_bad_end_while_stopping_is_told(self):
        up = self.start(scripts={"decode-0": {"exit_stopping": 23}})
        up.wait_ready(3)
        code, _ = up.stop()
        self.assertEqual(code, 1)
        self.assertIn("decode-0 exited with code 23", up.stderr())

    def test_second_signal_kills(self):
        up = self.start(scripts={"decode-0": {"deaf": True}})
        pids = up.wait_ready(3)
        up.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "stopping" in up.stderr(), "the first signal's word")
        up.process.send_signal(signal.SIGTERM)
        self.assertEqual(up.wait_end()[0], 0)
        self.assertIn("told to stop a second time", up.stderr())
        self.assert_gone(pids)

    def test_no_orphans_when_up_is_killed(self):
        up = self.start()
        pids = up.wait_ready(3)
        up.process.kill()
        up.wait_end()
        self.assert_gone(pids)

    def test_one_cluster_a_folder(self):
        up = self.start()
        up.wait_ready(3)
        second = run(up.folder / "baton", "up", "--model", up.model, "--workdir", up.work)
        self.assertEqual(second.returncode, 1)
        self.assertIn("another baton up runs in", second.stderr)

    def test_missing_daemon(self):
        up = self.start(daemons=DAEMONS[:2])
        self.assertEqual(up.wait_end()[0], 1)
        self.assertIn("baton-decode cannot be run: No such file or directory", up.stderr())

    def test_usage(self):
        missing = run(BATON, "up")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("--model FILE is required", missing.stderr)
        absent = run(BATON, "up", "--model", "/nowhere/model.gguf")
        self.assertEqual(absent.returncode, 1)
        self.assertIn("/nowhere/model.gguf cannot be opened", absent.stderr)
        device = run(BATON, "up", "--model", "/dev/null")
        self.assertEqual(device.returncode, 1)
        self.assertIn("is neither a file nor a folder", device.stderr)
        many = run(BATON, "up", "--model", "x", "--decode", "1000")
        self.assertEqual(many.returncode, 2)
        self.assertIn("1000", many.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
