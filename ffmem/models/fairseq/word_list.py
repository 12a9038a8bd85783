"""fairseq's dict.txt as a tokenizer: one id per line, words split at spaces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ffmem.errors import ModelError, refusals

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3; a dict.txt does not list them
OVERWRITE = "#fairseq:overwrite"


def read_words(path: Path) -> list[str]:
    """The words of a dict.txt by id, all different, fairseq's own four first."""
    if not path.is_file():
        raise ModelError(
            f"there is no {path.name} in {path.parent}; put the checkpoint's dict.txt next to it"
        )
    with refusals(f"{path} cannot be read", ModelError):
        data = path.read_bytes()
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text; give the checkpoint's dict.txt") from error
    words = list(SPECIAL)
    for number, line in enumerate(lines, 1):
        if line:
            words.append(_word(path, number, line))
    return _unique_words(words)


def _word(path: Path, number: int, line: str) -> str:
    """The word of one line `word count`, perhaps with a mark that it may be there twice."""
    word, _, count = line.rstrip().removesuffix(" " + OVERWRITE).rpartition(" ")
    if not word or not count.isdecimal():
        raise ModelError(
            f"line {number} of {path} is not a word and its count; give the checkpoint's dict.txt"
        )
    return word


def _unique_words(words: list[str]) -> list[str]:
    """The same with a number behind all but the last of equal words, which the text never names."""
    left, taken = Counter(words), set(words)
    found = []
    for number, word in enumerate(words):
        left[word] -= 1
        name = word if not left[word] else f"{word}#{number}"
        while left[word] and name in taken:
            name += "#"
        taken.add(name)
        found.append(name)
    return found


# WikiText's form of plain text, the rules of the Moses tokenizer for English without its escapes.
# Text that has this form already stays as it is.
FORM = (
    (r"(?<=[\p{L}\p{N}])-(?=[\p{L}\p{N}])", " @-@ "),
    (r"(?<=\p{N}),(?=\p{N})", " @,@ "),
    (r"(?<=\p{N})\.(?=\p{N})", " @.@ "),
    (r"(?<=\p{L})['’](?=\p{L})|(?<=\p{N})['’](?=s)|(?<=\p{L})['’](?=\s|\z)", " '"),
    (r"(?<=[^\s.])\.(?=['’\"”)\]]*\z)", " ."),  # the end of the text
    (  # the end of a sentence inside it: behind a word that is not an abbreviation
        r"(?:(?<=\p{Ll}{4})|(?<=\s\p{Ll}{2})|(?<=\s\p{Ll}{3})|(?<=\p{N}{4})|(?<=[)\]\"”%]))"
        r"(?<!\svs)(?<!\sca)(?<!\sno)(?<!\scf)\.(?=[\"”)]*\s+[\"“(]*\p{Lu})",
        " .",
    ),
)
SEPARATE_MARKS = r"\.{2,}|(?<!@),(?!@)|[^\p{L}\p{M}\p{N}\s.'’`,@-]"  # a word each


def word_splitter(wikitext: bool) -> Tokenizer:
    """A tokenizer without a vocabulary that splits text into words.

    At white space alone, or with `wikitext` as WikiText does: punctuation is a word of its own, and
    `well-known` is `well @-@ known`.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if wikitext:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Replace(Regex(pattern), form) for pattern, form in FORM]
        )
        apart = pre_tokenizers.Split(Regex(SEPARATE_MARKS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([apart, tokenizer.pre_tokenizer])
    return tokenizer


def word_tokenizer(
    words: list[str], longest: int, wikitext: bool, first: int = SPECIAL.index("</s>")
) -> PreTrainedTokenizerBase:
    """A tokenizer that gives each word its id and every other word that of `<unk>`.

    With `wikitext`, plain text is brought into WikiText's form first (`1,000` is `1 @,@ 000`).
    fairseq's own four words stay whole, also where a dict.txt lists one of them. `first` is the id
    that is read before every sentence.
    """
    from tokenizers import AddedToken, models
    from transformers import PreTrainedTokenizerFast

    unknown = words[SPECIAL.index("<unk>")]
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = word_splitter(wikitext)
    tokenizer.model = models.WordLevel(ids, unk_token=unknown)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in SPECIAL if word in ids])
    end, padding = words[SPECIAL.index("</s>")], words[SPECIAL.index("<pad>")]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=words[first],
        eos_token=end,
        pad_token=padding,
        unk_token=unknown,
        clean_up_tokenization_spaces=False,
        model_max_length=longest,
    )
