"""Which patterns a key's triggers share: prefixes, features, the rule annotator, its score."""
