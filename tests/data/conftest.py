import pytest


@pytest.fixture(autouse=True)
def _unoptimized(graphs_as_they_are):
    """Most tests here build data sets, of which they take a few examples."""
