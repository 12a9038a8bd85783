"""One chart a result; nothing is computed here."""
