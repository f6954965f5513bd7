"""Each field of the steps of data augmentation changes the step, or an error names it."""

import re
from typing import Any

from object_detection.builders import preprocessor_builder
from tests import rows
from tests.field_variants import variants


def state(value: Any) -> Any:
    """What a step is made of."""
    if isinstance(value, tuple | list):
        return [state(each) for each in value]
    if hasattr(value, '__dict__'):
        return type(value), {name: state(each) for name, each in vars(value).items()}
    return value


def built(config) -> str:
    return repr(state(preprocessor_builder.build(config)))


def is_silent(variant, base: str) -> bool:
    try:
        return built(variant.root) == base
    except ValueError as error:
        return not re.search(rf'\b{variant.field}\b', str(error))


@rows.parametrize('kind', preprocessor_builder.kinds())
def test_each_field_changes_the_step_or_is_named(kind):
    config = preprocessor_builder.build_sample_steps(kind)
    base = built(config)
    assert built(config) == base
    places = [kind if kind != 'one_of' else 'one_of.weights', 'probability']
    assert [
        each.place
        for of_field in variants(config, places)
        for each in of_field
        if is_silent(each, built(each.base))
    ] == []
