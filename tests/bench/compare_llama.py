#!/usr/bin/env python3
"""Compares `baton bench model` with llama.cpp's own benches on the same file.

Both run alternately, in turn first and second, at the same numbers of threads and tokens; what is
printed are medians of tokens per second and their ratio, as a table in Markdown. Nothing of the
peer is kept here: build it elsewhere and give the folder of its programs. The machine must have
nothing else to do: threads that wait for one another by spinning, as the peer's do, lose far more
than their share to a neighbour.

  compare_llama.py --peer FOLDER --model FILE --baton build/bin/baton
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

PREFILL, DECODE = "prefill", "decode"
RUN_TIMEOUT_S = 1800
STEPS = 32
LOAD_MAX = 0.5


def counts(text):
    """Numbers with commas between; `none` is an empty list."""
    if text == "none":
        return []
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers") from None
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' has a number below 1")
    return values


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="folder with llama-bench")
    parser.add_argument("--model", required=True, help="a GGUF file that both can read")
    parser.add_argument("--baton", default="build/bin/baton", help="the program baton")
    parser.add_argument("--prefill", type=counts, default=[512, 2048, 8192])
    parser.add_argument("--decode-batch", type=counts, default=[1, 8, 32])
    parser.add_argument("--context", type=int, default=256, help="tokens cached before decode")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program and case")
    parser.add_argument("--isa", help="instruction set of baton, its best when not given")
    parser.add_argument("--peer-kv", default="f16", help="type of the peer's KV cache")
    parser.add_argument("--kv-dtype", default="bf16", help="type of baton's KV cache")
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.rounds < 1 or arguments.context < 1:
        parser.error("--threads, --rounds and --context are numbers from 1")
    for path in [arguments.model, arguments.baton, peer_program(arguments, "llama-bench")]:
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    return arguments


def peer_program(arguments, name):
    return os.path.join(arguments.peer, name)


def run(command):
    """Standard output of a program; its last words and the end when it fails."""
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if result.returncode != 0:
        words = " ".join(result.stderr.strip().splitlines()[-3:])
        sys.exit(f"{command[0]} ended with {result.returncode}: {words}")
    return result.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def peer_speed(arguments, phase, count):
    common = ["-m", arguments.model, "-t", str(arguments.threads)]
    kv = ["-ctk", arguments.peer_kv, "-ctv", arguments.peer_kv]
    if phase == PREFILL:
        out = run(
            [peer_program(arguments, "llama-bench"), *common, *kv, "-fa", "1"]
            + ["-p", str(count), "-n", "0", "-r", "1", "-o", "json"]
        )
        return json.loads(out)[0]["avg_ts"]
    room = count * (arguments.context + STEPS)
    out = run(
        [peer_program(arguments, "llama-batched-bench"), *common, *kv, "-fa", "on"]
        + ["-c", str(room), "-b", "2048", "-ub", "512", "-npp", str(arguments.context)]
        + ["-ntg", str(STEPS), "-npl", str(count), "--output-format", "jsonl"]
    )
    return json_lines(out)[-1]["speed_tg"]


def baton_speed(arguments, phase, count):
    command = [arguments.baton, "bench", "model", "--model", arguments.model, "--json"]
    command += ["--threads", str(arguments.threads), "--kv-dtype", arguments.kv_dtype]
    command += ["--runs", "1", "--steps", str(STEPS), "--context", str(arguments.context)]
    if arguments.isa:
        command += ["--isa", arguments.isa]
    prefill, decode = (str(count), "none") if phase == PREFILL else ("none", str(count))
    command += ["--prefill", prefill, "--decode-batch", decode]
    return json_lines(run(command))[-1]["tokens_per_s"]


def measure(arguments, phase, count):
    """Medians of both, the one that runs first changing from round to round."""
    speeds = {baton_speed: [], peer_speed: []}
    order = [baton_speed, peer_speed]
    for turn in range(arguments.rounds):
        for program in order if turn % 2 == 0 else reversed(order):
            speeds[program].append(program(arguments, phase, count))
    return statistics.median(speeds[baton_speed]), statistics.median(speeds[peer_speed])


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def main():
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    if load > LOAD_MAX:
        print(f"the load of this machine is {load:.1f}: do not trust the ratios", file=sys.stderr)
    print(
        f"{os.path.basename(arguments.model)}, {cpu_name()}, {arguments.threads} threads, "
        f"medians of {arguments.rounds} alternating runs, {time.strftime('%Y-%m-%d')}\n"
    )
    print("| phase | baton tokens/s | llama.cpp tokens/s | ratio |")
    print("|---|---|---|---|")
    cases = [(PREFILL, count) for count in arguments.prefill]
    cases += [(DECODE, count) for count in arguments.decode_batch]
    for phase, count in cases:
        ours, theirs = measure(arguments, phase, count)
        what = f"prefill {count}" if phase == PREFILL else f"decode {count}"
        print(f"| {what} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
