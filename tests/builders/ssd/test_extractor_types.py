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
    nearest = extractor_types.NEAREST[name]
    assert problem.startswith(
        f'Received: {name!r}, a feature extractor of the reference implementation that is not '
        f'built here; the nearest one is {nearest}. Expected one of ssd_'
    )
    assert nearest.split()[0] in extractor_types.TYPES


@pytest.mark.parametrize(
    ('name', 'start', 'end'),
    [
        ('', 'expected one of ssd_', "Received: ''."),
        (
            'ssd_mobilenet_v2_kears',
            "Received: 'ssd_mobilenet_v2_kears'; did you mean 'ssd_mobilenet_v2_keras'? Expected ",
            f'{extractor_types.TYPES[-1]}.',
        ),
        ('unknown', 'expected one of ssd_', "Received: 'unknown'."),
    ],
)
def test_unknown_types(name, start, end):
    problem = extractor_types.problem(name)
    assert problem.startswith(start)
    assert problem.endswith(end)
