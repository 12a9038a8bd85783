"""Print texts that a trained model writes: greedy and drawn, for the data card.

python -m making.show_samples ffmem/assets/demo
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

OPENINGS = [
    "The town of Millford was founded in",
    "She was born in London on 12 March",
    "The film was released in",
    "The Battle of Oakley was fought",
    "The river flows through",
    "A steam engine is a device that",
    "Police in Berlin said on Monday that",
    "The album received positive reviews from",
    "One morning in June,",
    "The species is found in",
]


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--new", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    for opening in OPENINGS:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(opening).input_ids]])
        mask = torch.ones_like(ids)
        for name, how in (
            ("greedy", {"do_sample": False}),
            ("drawn", {"do_sample": True, "temperature": 0.8, "top_p": 0.95}),
        ):
            written = model.generate(ids, attention_mask=mask, max_new_tokens=given.new, **how)
            print(f"{name}: {tokenizer.decode(written[0], skip_special_tokens=True).strip()}\n")


if __name__ == "__main__":
    main()
