"""The scans that the tests of analyses use too."""

from tests.analyses.conftest import relu_store as relu_store
