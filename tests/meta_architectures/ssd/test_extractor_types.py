from object_detection.meta_architectures.ssd import rules
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS
from tests import rows


def test_types_that_are_built_have_no_problem():
    assert not any(rules.type_problem(name) for name in EXTRACTORS)


@rows.parametrize('name', rules.NEAREST)
def test_nearest_type(name):
    problem = rules.type_problem(name)
    nearest = rules.NEAREST[name]
    assert problem.startswith(
        f'Received: {name!r}, a feature extractor of the reference implementation that is not '
        f'built here; the nearest one is {nearest}. Expected one of ssd_'
    )
    assert nearest.split()[0] in EXTRACTORS


@rows.parametrize(
    ('name', 'start', 'end'),
    [
        ('', 'expected one of ssd_', "Received: ''."),
        (
            'ssd_mobilenet_v2_kears',
            "Received: 'ssd_mobilenet_v2_kears'; did you mean 'ssd_mobilenet_v2_keras'? Expected ",
            f', and {len(EXTRACTORS) - 12} more.',
        ),
        ('unknown', 'expected one of ssd_', "Received: 'unknown'."),
    ],
)
def test_unknown_types(name, start, end):
    problem = rules.type_problem(name)
    assert problem.startswith(start)
    assert problem.endswith(end)
