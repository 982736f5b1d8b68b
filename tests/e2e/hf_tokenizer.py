"""A GGUF file's vocabulary as the folder that Python's tokenizers read, for tools that count tokens
by themselves. Byte-level vocabularies with SmolLM's words only: that of the default model."""
import json
import pathlib
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
STRING, ARRAY = 8, 9
CONTROL = 3  # the type of a token that is no text


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            member, count = self.take("I"), self.take("Q")
            return [self.value(member) for _ in range(count)]
        return self.take(SCALARS[kind])


def metadata(path):
    reader = Reader(path.read_bytes())
    assert reader.take("I") == 0x46554747 and reader.take("I") == 3, f"{path} is no GGUF file"
    reader.take("Q")
    pairs = {}
    for _ in range(reader.take("Q")):
        key = reader.text()
        pairs[key] = reader.value(reader.take("I"))
    return pairs


def write_tokenizer(model, folder):
    """folder: made here, for AutoTokenizer.from_pretrained."""
    pairs = metadata(pathlib.Path(model))
    kind = (pairs["tokenizer.ggml.model"], pairs["tokenizer.ggml.pre"])
    assert kind == ("gpt2", "smollm"), f"{model} has a vocabulary of another kind: {kind}"
    tokens = pairs["tokenizer.ggml.tokens"]
    added = [{"id": index, "content": tokens[index], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for index, code in enumerate(pairs["tokenizer.ggml.token_type"]) if code == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "post_processor": None, "decoder": byte_level,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: index for index, token in enumerate(tokens)},
                  "merges": pairs["tokenizer.ggml.merges"]}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokens[pairs["tokenizer.ggml.eos_token_id"]]}))
