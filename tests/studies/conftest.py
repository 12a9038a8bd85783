from tests.report.conftest import gated_study, toy_study

__all__ = ["gated_study", "toy_study"]
