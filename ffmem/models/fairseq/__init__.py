"""fairseq's language models: their files, and what they have that transformers lacks."""

KIND = "fairseq_lm"  # the architecture that ffmem brings


def introduce(kind: object) -> None:
    """Let transformers know the architecture if it is this one; others do not wait for it."""
    if kind == KIND:
        from ffmem.models.fairseq.adaptive_model import register

        register()
