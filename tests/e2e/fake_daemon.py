#!/usr/bin/env python3
"""Stands in for baton-router, baton-prefill and baton-decode under `baton up`.

It speaks the notify protocol and nothing else. FAKE_DIR holds what it does and what it has seen:
NAME.json (read at each start) scripts the daemon called NAME, NAME.argv gets one JSON line a start.
"""
import json
import os
import signal
import sys


def option(name, default=None):
    arguments = sys.argv[1:]
    return arguments[arguments.index(name) + 1] if name in arguments else default


def main():
    folder = os.environ["FAKE_DIR"]
    is_router = os.path.basename(sys.argv[0]) == "baton-router"
    name = "router" if is_router else option("--name")
    with open(f"{folder}/{name}.argv", "a") as seen:
        seen.write(json.dumps(sys.argv) + "\n")
    try:
        with open(f"{folder}/{name}.json") as script_file:
            script = json.load(script_file)
    except FileNotFoundError:
        script = {}
    notify = os.fdopen(int(option("--notify-fd")), "w", buffering=1)

    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    print("fake daemon", name, "begins", flush=True)
    for line in script.get("lines", []):
        notify.write(line + "\n")
    if "log" in script:
        print(script["log"], flush=True)
    if "exit" in script:
        sys.exit(script["exit"])
    if is_router and "control" not in script:
        notify.write("HTTP=127.0.0.1:18000\nCONTROL=127.0.0.1:17700\n")
    if name.startswith("decode"):
        notify.write("DATA=127.0.0.1:19000\n")
    if not script.get("late"):
        notify.write("READY=1\n")
    while signal.sigwait(stop_signals) and script.get("deaf"):
        pass
    sys.exit(script.get("exit_stopping", 0))


main()
