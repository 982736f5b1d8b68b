"""Two network namespaces and a link between them that can be slow, lossy or cut in one direction.

A Link is a pair of TUN devices whose packets this process carries, since netem is missing from many
kernels; a Wire is carried by the kernel, costs nothing and can only be slow. Whoever lacks the
rights gets a skipped test."""
import contextlib
import ctypes
import fcntl
import heapq
import os
import pathlib
import random
import select
import struct
import subprocess
import threading
import time
import unittest

CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
HERE, THERE = "10.97.0.1", "10.97.0.2"
MTU = 9000


def command(*words):
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise unittest.SkipTest(f"{' '.join(words)}: {result.stderr.strip()}")
    return result.stdout


def enter_namespace():
    """This process, once, leaves the host's network: nothing of the tests is seen there."""
    if not pathlib.Path("/dev/net/tun").exists():
        raise unittest.SkipTest("there is no /dev/net/tun")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise unittest.SkipTest(f"unshare: {os.strerror(ctypes.get_errno())}")
    command("mount", "--make-rprivate", "/")
    command("mount", "-t", "sysfs", "sysfs", "/sys")
    command("ip", "link", "set", "lo", "up")


class Ends:
    """HERE, in this process's namespace, and THERE, in one of its own; a device at each."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "-m", "sleep", "3600"])
        try:
            own = os.readlink("/proc/self/ns/net")
            end = time.monotonic() + 60
            while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
                if time.monotonic() > end or self.holder.poll() is not None:
                    raise unittest.SkipTest("no further namespace can be made")
                time.sleep(0.01)
            self._devices()
            command("ip", "link", "set", "baton1", "netns", str(self.holder.pid))
            self.there("mount", "-t", "sysfs", "sysfs", "/sys")
            self.there("ip", "link", "set", "lo", "up")
            for run, name, address in ((command, "baton0", HERE), (self.there, "baton1", THERE)):
                run("ip", "addr", "add", f"{address}/30", "dev", name)
                run("ip", "link", "set", name, "mtu", str(MTU), "up")
        except BaseException:
            self.holder.kill()
            self.holder.wait()
            raise

    def _devices(self):
        """Makes baton0 and baton1, the two ends of one link."""
        raise NotImplementedError

    def inside(self, *words):
        """A command as it has to be written to run THERE."""
        return ["nsenter", "-t", str(self.holder.pid), "-n", "-m", *words]

    def there(self, *words):
        return command(*self.inside(*words))

    def limit(self, rate, burst="64kb"):
        """Bytes leave HERE at most so fast, e.g. 20mbit."""
        command("tc", "qdisc", "replace", "dev", "baton0", "root", "tbf", "rate", rate, "burst",
                burst, "latency", "200ms")

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Wire(Ends):
    def _devices(self):
        command("ip", "link", "add", "baton0", "type", "veth", "peer", "name", "baton1")

    def close(self):
        command("ip", "link", "del", "baton0")
        super().close()


class Link(Ends):
    def __init__(self):
        self.delay_s, self.loss = 0.0, 0.0
        self.cut = set()  # of "out" (to THERE) and "in"
        self.random = random.Random(1)
        self.carried = {"out": 0, "in": 0}
        super().__init__()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def _devices(self):
        self.here_fd, self.there_fd = self._device("baton0"), self._device("baton1")

    def _device(self, name):
        try:
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        except OSError as error:
            raise unittest.SkipTest(f"TUN devices: {error}") from error
        return fd

    def _carry(self):
        waiting, number = [], 0
        ways = {self.here_fd: ("out", self.there_fd), self.there_fd: ("in", self.here_fd)}
        while not self.over.is_set():
            pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            for fd in select.select(list(ways), [], [], min(pause, 0.05))[0]:
                way, to = ways[fd]
                with contextlib.suppress(BlockingIOError):
                    packet = os.read(fd, MTU + 100)
                    if way not in self.cut and self.random.random() >= self.loss:
                        number += 1
                        heapq.heappush(waiting,
                                       (time.monotonic() + self.delay_s, number, to, packet))
                        self.carried[way] += len(packet)
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(waiting)
                with contextlib.suppress(BlockingIOError, OSError):
                    os.write(to, packet)

    def close(self):
        self.over.set()
        self.thread.join()
        os.close(self.here_fd)
        os.close(self.there_fd)
        super().close()
