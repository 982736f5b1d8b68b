"""Compares ids and decoded texts with the Hugging Face tokenizers package over random strings.

    compare_tokenizers.py TEXT_FILTER [COUNT [SEED]]

Tokenizers of every kind are trained on the licence and some lines here: nothing has to be fetched;
each gets COUNT strings (10,000 in all by default, a million in all with BATON_TEST_LONG=1). Exits
with 77 where the package is not installed.
"""

import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

SKIPPED = 77
SHORT_COUNT = 10_000
LONG_COUNT = 1_000_000
BATCH = 5_000
VOCABULARY = 800
SHOWN = 5
LONG_PARTS = 1500  # strings that are joined to one, in which words come again

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
LISTED = pathlib.Path(__file__).resolve().parents[3] / "ops" / "python.txt"
PACKAGES = "python-" + hashlib.sha256(LISTED.read_bytes()).hexdigest()[:12]  # as ops/lib.sh has it
sys.path.append(os.environ.get("BATON_PYTHON_PACKAGES") or str(CACHE / "baton" / PACKAGES))

try:
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, processors, trainers)
except ImportError:
    print("the tokenizers package of ops/python.txt is not installed")
    sys.exit(SKIPPED)

MARK = "\u2581"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFXYZ", " \t\n\r\u00a0\u3000\u2003", "0123456789²½Ⅷ٣",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~—…“”「」", "éüñçßøåæœđ", "абвгдежз", "αβγδ",
    "漢字仮名交じり文中国人民", "가나다라한국어", "กขคงไทย", "हिन्दी", "עברית", "العربية",
    "😀🎉👨\u200d👩\u200d👧🏽❤\ufe0f", "\u0301\u0308\u0323\u200d\ufe0f", "ﬁ①㎏ｱ™", MARK + " a",
]


# What the licence, prose in one language, has little of.
CODE_LINES = [
    "| `router.c` | ties the parts: 3.14 s, 0x7f, 1,024 pages, 99 % |",
    "```sh", "$ make -j2 && ./run",
    "for (size_t i = 0; i < count; i++) { sum += values[i] * 2; }", "    return NULL;  /* none */",
    "def tokens(self, text):\n\treturn [ord(c) for c in text]",
    "The router's tokens don't wait; we'll.",
    "{\"model\": \"m\", \"stream\": true, \"n\": null, \"stop\": [\"\\n\"]}", "#include <stdio.h>",
    "https://example.org/a?b=c&d=%20#e",
    "--http-port 8000 --kv-pages=64 -v", "a -> b -> c, (x, y) => z",
    "Prefill reads the prompt, decode writes the answer: TTFT, TPOT.",
    "router ROUTER Router routers",
]


def pages():
    """Lines that nobody edits for another reason: a failure is of the code, and comes again."""
    root = pathlib.Path(__file__).resolve().parents[3]
    lines = (root / "LICENSE").read_text(encoding="utf-8").split("\n")
    return lines + CODE_LINES * 10 + ["".join(pool) for pool in POOLS] * 10


def added():
    return [
        AddedToken("<tool>", special=False, normalized=False),
        AddedToken("[L]", lstrip=True, normalized=False),
        AddedToken("[R]", rstrip=True, normalized=False),
        AddedToken("router", single_word=True, normalized=True),
        AddedToken("<|end|>", special=True, normalized=False),
    ]


def isolated(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def spaces(*more):
    return decoders.Sequence(
        [decoders.Replace(MARK, " "), *more, decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def trie(keys):
    """The units of a double array that leads from keys, bytes, to numbers."""
    units, taken, bases = {}, {0}, set()

    def place(at, prefix, members):
        labels = sorted({key[len(prefix)] if len(key) > len(prefix) else 0 for key in members})
        base = next(base for base in range(1, 1 << 21)
                    if base not in bases and not any(base ^ label in taken for label in labels))
        bases.add(base)
        taken.update(base ^ label for label in labels)
        units[at] = (prefix[-1] if prefix else 0) | (labels[0] == 0) << 8 | (base ^ at) << 10
        for label in labels:
            if label == 0:
                units[base] = 1 << 31 | keys[prefix]
            else:
                longer = prefix + bytes([label])
                place(base ^ label, longer, [key for key in members if key.startswith(longer)])

    place(0, b"", list(keys))
    count = (max(taken) | 255) + 1
    return [units.get(at, 1 << 31) for at in range(count)]


def charsmap():
    """A map as SentencePiece compiles it: NFKC, some marks and the controls that it drops."""
    points = [*range(0xA0, 0x250), *range(0x2000, 0x2190), *range(0x2460, 0x24EB),
              *range(0x3300, 0x3358), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFFEF)]
    pairs = {chr(point): unicodedata.normalize("NFKC", chr(point)) for point in points}
    pairs |= {base + mark: unicodedata.normalize("NFKC", base + mark)
              for base in "aeiouAEIOUnc" for mark in "\u0300\u0301\u0303\u0308\u0323\u0327"}
    pairs |= {"\t": " ", "\n": " ", "\r": " ", "\u200b": " ", "\u00ad": "", "\ufeff": ""}
    keys, texts = {}, b""
    for key, text in pairs.items():
        if key != text:
            keys[key.encode()] = len(texts)
            texts += text.encode() + b"\0"
    units = trie(keys)
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


def kinds():
    """Name, normalizer, pre-tokenizer, decoder, model: "bytes", "characters" or "unigram"."""
    pre = pre_tokenizers
    norm = normalizers
    return [
        ("qwen2", norm.NFC(), isolated(QWEN2), decoders.ByteLevel(), "bytes"),
        ("llama3", None, isolated(LLAMA3), decoders.ByteLevel(), "bytes"),
        ("cased", None, isolated(CASED), decoders.ByteLevel(), "bytes"),
        ("deepseek", None, isolated(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK),
         decoders.ByteLevel(), "bytes"),
        ("smollm", None, pre.Sequence([pre.Digits(individual_digits=True),
                                       pre.ByteLevel(add_prefix_space=False)]),
         decoders.ByteLevel(), "bytes"),
        ("gpt2-prefix", norm.NFD(), pre.ByteLevel(add_prefix_space=True), decoders.ByteLevel(),
         "bytes"),
        ("llama2", norm.Sequence([norm.Prepend(MARK), norm.Replace(" ", MARK)]), None,
         spaces(decoders.ByteFallback()), "fallback"),
        ("gemma", norm.Replace(" ", MARK), pre.Split(" ", "merged_with_previous"),
         decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                            decoders.Fuse()]), "fallback"),
        ("words", norm.Lowercase(), pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation()]),
         decoders.Fuse(), "characters"),
        ("whitespace", None, pre.Whitespace(), None, "characters"),
        ("bert", norm.Strip(), pre.BertPreTokenizer(), None, "characters"),
        ("removed", None, pre.Sequence([pre.Split(Regex(r"[aeiou\s]"), "removed"),
                                        pre.CharDelimiterSplit("_")]), None, "characters"),
        ("previous", None, pre.Sequence([pre.Split("e", "merged_with_previous"),
                                         pre.Digits()]), None, "characters"),
        ("next", None, pre.Sequence([pre.Split("-", "merged_with_next"),
                                     pre.Punctuation("contiguous")]), None, "characters"),
        ("contiguous", None, pre.Split(Regex(r"\s+$|[a-f]"), "contiguous", invert=True), None,
         "characters"),
        ("metaspace", norm.NFKC(), pre.Metaspace(), decoders.Metaspace(), "unigram"),
        ("precompiled", norm.Sequence([norm.Precompiled(charsmap()),
                                       norm.Replace(Regex(" {2,}"), " ")]),
         pre.Metaspace(), decoders.Metaspace(), "unigram"),
        ("metaspace-first", norm.NFKD(), pre.Metaspace(prepend_scheme="first"),
         decoders.Metaspace(prepend_scheme="first"), "unigram"),
        ("metaspace-never", norm.Replace(Regex(" {2,}"), " "),
         pre.Metaspace(prepend_scheme="never", split=False),
         decoders.Metaspace(prepend_scheme="never"), "unigram"),
    ]


def build(kind, corpus):
    _, normalizer, pre_tokenizer, decoder, model = kind
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    if model == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=VOCABULARY, show_progress=False,
                                          special_tokens=["<unk>"], unk_token="<unk>")
    elif model == "bytes":
        tokenizer = Tokenizer(models.BPE(ignore_merges=kind[0] == "llama3"))
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        fallback = model == "fallback"
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=kind[0] != "bert",
                                         byte_fallback=fallback))
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY + 256, show_progress=False,
                                      special_tokens=["<unk>"] + (byte_tokens if fallback else []))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens(added())
    if model == "fallback":  # byte tokens are found by falling back, not in the text
        written = json.loads(tokenizer.to_str())
        written["added_tokens"] = [token for token in written["added_tokens"]
                                   if not token["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(written))
    tokenizer.post_processor = processors.ByteLevel()
    return tokenizer


def some_string(rand, words, specials):
    kind = rand.random()
    if kind < 0.35:
        return " ".join(rand.choice(words) for _ in range(rand.randint(1, 12)))
    if kind < 0.4:
        planes = [(1, 0x2FF), (1, 0xD7FF), (0xE000, 0x10FFFF)]
        return "".join(chr(rand.randint(*rand.choice(planes))) for _ in range(rand.randint(1, 8)))
    out = ""
    for _ in range(rand.randint(1, 8)):
        pool = rand.choice(POOLS)
        out += "".join(rand.choice(pool) for _ in range(rand.randint(1, 5)))
        out += rand.choice(["", "", " "])
        if rand.random() < 0.1:
            out += rand.choice(["", " ", "a", "\n"]) + rand.choice(specials)
    if rand.random() < 0.1:
        out += rand.choice("a1 \n-" + MARK) * rand.randint(1, 40)
    return out


def ours(filter_path, folder, special, strings):
    records = b"".join(struct.pack("<I", len(text)) + text
                       for text in (string.encode() for string in strings))
    command = [filter_path, folder] + (["special"] if special else [])
    answer = subprocess.run(command, input=records, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in strings:
        (count,) = struct.unpack_from("<I", answer, at)
        ids = list(struct.unpack_from(f"<{count}i", answer, at + 4))
        at += 4 + 4 * count
        (size,) = struct.unpack_from("<I", answer, at)
        yield ids, answer[at + 4:at + 4 + size].decode()
        at += 4 + size


def compare(filter_path, folder, name, tokenizer, count, rand, words):
    """The number of strings that differ."""
    wrong = 0
    specials = [token.content for token in added()]
    for special in (False, True):
        tokenizer.encode_special_tokens = not special
        left = count // 2
        while left > 0:
            strings = [some_string(rand, words, specials) for _ in range(min(left, BATCH))]
            left -= len(strings)
            strings.append(" ".join(strings[:LONG_PARTS]))
            theirs = tokenizer.encode_batch(strings, add_special_tokens=False)
            for string, encoding, (ids, text) in zip(strings, theirs,
                                                     ours(filter_path, folder, special, strings)):
                decoded = tokenizer.decode(encoding.ids, skip_special_tokens=False)
                # The reference shows an added token that is normalised as its normalised self.
                if ids == encoding.ids and (text == decoded or "router" in string):
                    continue
                wrong += 1
                if wrong <= SHOWN:
                    print(f"{name}: {string!a}\n  reference {encoding.ids} {decoded!a}\n"
                          f"  Baton     {ids} {text!a}")
    return wrong


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    total = LONG_COUNT if os.environ.get("BATON_TEST_LONG") == "1" else SHORT_COUNT
    total = int(sys.argv[2]) if len(sys.argv) > 2 else total
    rand = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    corpus = pages()
    words = " ".join(corpus).split()
    wrong = 0
    for kind in kinds():
        tokenizer = build(kind, corpus)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            tokenizer.save(path)
            tokenizer = Tokenizer.from_file(path)  # which reads its own scores a bit differently
            count = max(2, total // len(kinds()))
            differ = compare(sys.argv[1], folder, kind[0], tokenizer, count, rand, words)
        print(f"{kind[0]}: {differ} of {count} strings differ")
        wrong += differ
    return 1 if wrong > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
