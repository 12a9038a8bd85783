"""Train a byte-level BPE tokenizer on text, one paragraph a line.

    python -m making.train_tokenizer out/text/train.txt --into out/tokenizer --size 8000

- Ids 0 to 3 are `<s>`, `<pad>`, `</s>`, `<unk>`, in OPT's order. `</s>` is both BOS and EOS; the
  tokenizer adds none of them by itself, so whoever feeds the model puts `</s>` first.
- Every byte has a token, so any text can be written and nothing becomes `<unk>`.
- A text's first word gets the token it has inside a sentence (`add_prefix_space`): `The` and ` The`
  are the same tokens, and decoding gives one space before the text.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from making.files import lines_of, write_whole

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def trained(lines: Iterable[str], size: int) -> Tokenizer:
    """A tokenizer with `size` tokens, learnt from lines of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, longest: int) -> None:
    """Write the two files that AutoTokenizer reads."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "</s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "add_prefix_space": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
    }
    write_whole(folder / "tokenizer.json", tokenizer.to_str().encode())
    write_whole(folder / "tokenizer_config.json", json.dumps(settings, indent=1).encode())


def main() -> None:
    """Read the command line, train and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--size", type=int, default=8000)
    parser.add_argument("--longest", type=int, default=512, help="positions of the model")
    parser.add_argument("--lines", type=int, default=400_000, help="learn from so many lines")
    given = parser.parse_args()
    lines = [line for _, line in zip(range(given.lines), lines_of(given.text), strict=False)]
    tokenizer = trained(lines, given.size)
    save(tokenizer, given.into, given.longest)
    count = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(lines[:1000]))
    words = sum(len(line.split()) for line in lines[:1000])
    print(f"{tokenizer.get_vocab_size()} tokens; {count / words:.2f} tokens per word", flush=True)


if __name__ == "__main__":
    main()
