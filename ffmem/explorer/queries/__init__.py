"""Pure questions to a study, answered in frozen dataclasses; no request, no HTML."""
