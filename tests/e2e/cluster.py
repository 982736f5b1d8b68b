"""A local cluster started by `baton up`, with its processes at hand."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

from processes import (BATON, DEADLINE_S, Client, alive, all_stopped, clean_environment, run,
                       wait_for)

# The random model that most tests serve; one file a run, written on first use.
_model = None


def tiny_model(arch="llama", kind="f32", context=0):
    global _model
    if _model is None:
        _model = tempfile.TemporaryDirectory(prefix="baton-models-")
    path = pathlib.Path(_model.name) / f"tiny-{arch}-{kind}-{context}.gguf"
    if not path.exists():
        made = run(BATON, "make-model", "--arch", arch, "--like", "tiny", "--type", kind,
                   "--context", context, path)
        if made.returncode != 0:
            raise AssertionError(f"make-model: {made.stderr}")
    return path


# Whoever waits for its CPU on a busy machine is not lost, and its timings are worth waiting for.
PATIENCE = {"BATON_WORKER_TIMEOUT_MS": "60s", "BATON_RESERVE_TIMEOUT_MS": "60s",
            "BATON_REPORT_WAIT_MS": "10s"}


class Cluster:
    """prefill=0 is the colocated mode. Further options go to `baton up` as they are. The router is
    patient and short prompts are handed off like long ones, unless env says otherwise."""

    def __init__(self, model=None, prefill=1, decode=1, options=(), env=None):
        self.model = model or tiny_model()
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-e2e-")
        self.folder = pathlib.Path(self.scratch.name)
        self.work = self.folder / "work"
        self.ready_file = self.folder / "ready.json"
        environment = {**clean_environment(), **PATIENCE, "BATON_LOCAL_PREFILL_TOKENS": "0",
                       **(env or {})}
        with open(self.folder / "up.err", "w") as stderr:
            self.process = subprocess.Popen(
                [str(BATON), "up", "--model", str(self.model), "--prefill", str(prefill),
                 "--decode", str(decode), "--http", "127.0.0.1:0", "--workdir", str(self.work),
                 "--ready-file", str(self.ready_file), *map(str, options)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                env=environment)
        try:
            ready = wait_for(self._ready, "the cluster to be ready")
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise
        self.url = ready["url"]
        self.client = Client(self.url)

    def _ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"baton up has ended with {self.process.returncode}:\n"
                                 f"{self.words()}")
        return self.ready_file.exists() and json.loads(self.ready_file.read_text())

    def words(self):
        """All that was said on standard error and in the logs, for a failed test."""
        texts = [(self.folder / "up.err").read_text()]
        for path in sorted(self.work.glob("*.log")):
            texts.append(f"--- {path.name}\n{path.read_text()}")
        return "\n".join(texts)

    def pids(self):
        return json.loads(self.ready_file.read_text())["pids"]

    def control(self):
        """Where workers connect, as the router said when it began."""
        found = re.search(r"workers on port (\d+)", (self.work / "router.log").read_text())
        return f"127.0.0.1:{found.group(1)}"

    def kill(self, name):
        """kill -9; the pid, to wait for its successor with wait_back."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_back(self, name, old_pid):
        """Until another process of that name is ready and the router could serve again."""
        wait_for(lambda: self.pids().get(name, old_pid) != old_pid, f"a new {name}")
        wait_for(lambda: self.client.get("/health").status == 200, "a healthy router")

    def pause(self, name):
        pid = self.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        # The signal is only sent then; a thread on a CPU runs on for a moment.
        wait_for(lambda: all_stopped(pid), f"{name} to stand still")

    def resume(self, name):
        os.kill(self.pids()[name], signal.SIGCONT)

    def workers(self):
        """Those that could be given work; /workers also tells of the lost."""
        return [worker for worker in self.client.get("/workers").json()["workers"]
                if worker["state"] == "up"]

    def stop(self):
        """SIGTERM, then what became of it: the exit code. No process may be left."""
        if self.process.poll() is not None:
            return self.process.returncode
        pids = self.pids()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        for name, pid in pids.items():
            if alive(pid):
                raise AssertionError(f"{name} (pid {pid}) outlived the cluster")
        return code

    def close(self):
        """Stops it and looks at what it said: no daemon may have ended badly or be reported on by a
        sanitizer, those killed on purpose aside."""
        code, words = self.stop(), self.words()
        self.scratch.cleanup()
        if code != 0 or "Sanitizer" in words or "runtime error:" in words:
            raise AssertionError(f"baton up ended with {code}:\n{words}")


class Router:
    """A router by itself; no worker ever comes."""

    def __init__(self, *options):
        self.scratch = tempfile.TemporaryDirectory(prefix="baton-router-")
        self.process = subprocess.Popen(
            [str(BATON.parent / "baton-router"), "--model", str(tiny_model()), "--http",
             "127.0.0.1:0", "--control", "127.0.0.1:0", "--state-dir", self.scratch.name,
             *map(str, options)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment())
        found = None
        while found is None:
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError(f"the router has ended with {self.process.wait()}")
            found = re.search(r"HTTP on port (\d+)", line)
        self.address = ("127.0.0.1", int(found.group(1)))
        self.url = f"http://127.0.0.1:{self.address[1]}"

    def close(self):
        self.process.terminate()
        words = self.process.stderr.read()
        self.process.stderr.close()
        code = self.process.wait(DEADLINE_S)
        self.scratch.cleanup()
        if code != 0 or "Sanitizer" in words or "runtime error:" in words:
            raise AssertionError(f"the router ended with {code}:\n{words}")
