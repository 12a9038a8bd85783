"""The embedded default: a small ReLU language model and the text it was made from.

Both are our own and need no download: see docs/reference/demo-model.md.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "assets" / "demo"
MODEL = FOLDER  # a folder that transformers loads with no custom code
TRAIN = FOLDER / "train.txt.xz"  # a sample of the training text, 1.5 million tokens
VALID = FOLDER / "valid.txt.xz"  # the whole validation text, 0.7 million tokens
READINGS = FOLDER.parent / "readings"  # what language models said of a study's sheets, read blind

CORPORA = {"demo": TRAIN, "demo:train": TRAIN, "demo:valid": VALID}


def corpus(name: str) -> str:
    """The path of an embedded text by its name, or `name` itself where no embedded text has it."""
    return str(CORPORA.get(name, name))
