import pytest

from object_detection.builders.ssd import extractor_types
from object_detection.models.feature_extractors.single_shot_types import SSD


def test_types_are_those_of_the_table():
    assert set(extractor_types.TYPES) >= set(SSD)


def test_types_that_are_built_have_no_problem():
    assert not any(extractor_types.problem(name) for name in extractor_types.TYPES)


@pytest.mark.parametrize('name', extractor_types.NEAREST)
def test_nearest_type(name):
    problem = extractor_types.problem(name)
    assert f'Received: {name!r}' in problem
    nearest = extractor_types.NEAREST[name]
    assert problem.endswith(f'the nearest one is {nearest}.')
    assert nearest.split()[0] in extractor_types.TYPES


@pytest.mark.parametrize(
    ('name', 'end'),
    [
        ('', "Received: ''."),
        ('ssd_mobilenet_v2_kears', "did you mean 'ssd_mobilenet_v2_keras'?"),
        ('unknown', "Received: 'unknown'."),
    ],
)
def test_unknown_types(name, end):
    assert extractor_types.problem(name).endswith(end)
